//! What threads share is made of: the standard library's parts, or those of loom where its models run (`--cfg loom`). Only
//! what a model looks at takes them from here.

#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(all(loom, test))]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
