//! PMIx, through the library that its managers come with. It is loaded where a manager has set `PMIX_NAMESPACE`, and nowhere
//! else: no build needs it.
//!
//! Layouts and constants are those of PMIx's standard 3.1 to 5.0 (`pmix_common.h`), which did not change in these.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};

use libloading::Library;

use crate::{KEY, PmiError};

/// The library, by the name that all its releases since 2 have.
const LIBRARY: &str = "libpmix.so.2";
const JOB_SIZE: &CStr = c"pmix.job.size";

type Status = c_int;
const SUCCESS: Status = 0;
/// Types of values.
const STRING: u16 = 3;
const UINT32: u16 = 14;
/// All processes may read what is published.
const GLOBAL: u8 = 3;
/// A key of the job's, and of no process.
const RANK_WILDCARD: u32 = u32::MAX - 1;

/// `pmix_proc_t`: a process of a namespace.
#[repr(C)]
#[derive(Clone, Copy)]
struct PmixProc {
    namespace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: a type, and a union whose members begin at one place. No release has a larger one than this.
#[repr(C)]
struct PmixValue {
    kind: u16,
    content: PmixContent,
    _rest: [u64; 7],
}

#[repr(C)]
union PmixContent {
    string: *const c_char,
    uint32: u32,
    _whole: u64,
}

type InitFn = unsafe extern "C" fn(*mut PmixProc, *const u8, usize) -> Status;
type FinalizeFn = unsafe extern "C" fn(*const u8, usize) -> Status;
type PutFn = unsafe extern "C" fn(u8, *const c_char, *const PmixValue) -> Status;
type CommitFn = unsafe extern "C" fn() -> Status;
type FenceFn = unsafe extern "C" fn(*const PmixProc, usize, *const u8, usize) -> Status;
type GetFn = unsafe extern "C" fn(*const PmixProc, *const c_char, *const u8, usize, *mut *const PmixValue) -> Status;
type ErrorStringFn = unsafe extern "C" fn(Status) -> *const c_char;

/// A process's end of PMIx.
pub(crate) struct PmixClient {
    functions: PmixFunctions,
    this: PmixProc,
}

/// The functions that are used. They are there for as long as the process lives: the library has threads of its own, and is not
/// unloaded.
struct PmixFunctions {
    init: InitFn,
    finalize: FinalizeFn,
    put: PutFn,
    commit: CommitFn,
    fence: FenceFn,
    get: GetFn,
    error_string: ErrorStringFn,
}

impl PmixFunctions {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: the library's initializers have no precondition; any PMIx client of this process would have loaded it.
        let library = unsafe { Library::new(LIBRARY)? };
        // SAFETY: each function has the type that the standard gives it (see above).
        let functions = unsafe {
            Self {
                init: *library.get::<InitFn>(b"PMIx_Init\0")?,
                finalize: *library.get::<FinalizeFn>(b"PMIx_Finalize\0")?,
                put: *library.get::<PutFn>(b"PMIx_Put\0")?,
                commit: *library.get::<CommitFn>(b"PMIx_Commit\0")?,
                fence: *library.get::<FenceFn>(b"PMIx_Fence\0")?,
                get: *library.get::<GetFn>(b"PMIx_Get\0")?,
                error_string: *library.get::<ErrorStringFn>(b"PMIx_Error_string\0")?,
            }
        };
        std::mem::forget(library);
        Ok(functions)
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), PmiError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function takes any status, and returns a text that is never freed, or nothing.
        let text = unsafe {
            let text = (self.error_string)(status);
            if text.is_null() { None } else { Some(CStr::from_ptr(text)) }
        };
        let reason = text.map_or_else(|| format!("status {status}"), |text| text.to_string_lossy().into_owned());
        Err(PmiError::Pmix { call, reason })
    }

    /// A value of this type that a process, or the job, has published.
    fn get(&self, of: &PmixProc, key: &CStr, kind: u16) -> Result<&PmixContent, PmiError> {
        let mut found = std::ptr::null();
        // SAFETY: the process and the key live as long as the call, which has no directives, and writes where a value is.
        let status = unsafe { (self.get)(of, key.as_ptr(), std::ptr::null(), 0, &raw mut found) };
        self.check("PMIx_Get", status)?;
        // SAFETY: a call that succeeds leaves a value, which is the caller's. It is never freed: two of them, once in a
        // process.
        let value = unsafe { found.as_ref() }.filter(|value| value.kind == kind);
        let unknown = || PmiError::Pmix { call: "PMIx_Get", reason: format!("no value of type {kind}") };
        value.map(|value| &value.content).ok_or_else(unknown)
    }
}

impl PmixClient {
    /// The client, its rank and the job's size.
    pub(crate) fn from_environment() -> Result<Option<(Self, usize, usize)>, PmiError> {
        if std::env::var_os("PMIX_NAMESPACE").is_none() {
            return Ok(None);
        }
        let functions = PmixFunctions::load().map_err(|source| PmiError::NoLibrary { library: LIBRARY, source })?;
        let mut this = PmixProc { namespace: [0; 256], rank: 0 };
        // SAFETY: the process is ours to be written, and there are no directives.
        let status = unsafe { (functions.init)(&raw mut this, std::ptr::null(), 0) };
        functions.check("PMIx_Init", status)?;
        let job = PmixProc { rank: RANK_WILDCARD, ..this };
        // SAFETY: a value of this type has a number in its union.
        let size = functions.get(&job, JOB_SIZE, UINT32).map(|content| unsafe { content.uint32 })?;
        let rank = this.rank as usize;
        Ok(Some((Self { functions, this }, rank, size as usize)))
    }

    /// Puts, commits, waits for all, gets, and finalizes.
    pub(crate) fn publish(self, text: Option<&str>) -> Result<String, PmiError> {
        let key = CString::new(KEY).expect("it has no zero");
        if let Some(text) = text {
            self.put(&key, text)?;
        }
        let everybody = PmixProc { rank: RANK_WILDCARD, ..self.this };
        // SAFETY: the array of one process lives as long as the call, which has no directives.
        let status = unsafe { (self.functions.fence)(&raw const everybody, 1, std::ptr::null(), 0) };
        self.functions.check("PMIx_Fence", status)?;
        let first = PmixProc { rank: 0, ..self.this };
        let content = self.functions.get(&first, &key, STRING)?;
        // SAFETY: a value of this type has a text that ends with a zero, and is never freed, or no text.
        let found = unsafe { content.string.as_ref().map(|first| CStr::from_ptr(first)) };
        let found = found.map_or_else(String::new, |text| text.to_string_lossy().into_owned());
        // SAFETY: the client was initialized once for this call, and there are no directives.
        let status = unsafe { (self.functions.finalize)(std::ptr::null(), 0) };
        self.functions.check("PMIx_Finalize", status)?;
        Ok(found)
    }

    fn put(&self, key: &CStr, text: &str) -> Result<(), PmiError> {
        let text = CString::new(text).expect("it is printable");
        let value = PmixValue { kind: STRING, content: PmixContent { string: text.as_ptr() }, _rest: [0; 7] };
        // SAFETY: the library copies the key and the value, and the text that this one points to, before it returns.
        let status = unsafe { (self.functions.put)(GLOBAL, key.as_ptr(), &raw const value) };
        self.functions.check("PMIx_Put", status)?;
        // SAFETY: the client is initialized.
        self.functions.check("PMIx_Commit", unsafe { (self.functions.commit)() })
    }
}

impl std::fmt::Debug for PmixClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PmixClient").field("rank", &self.this.rank).finish_non_exhaustive()
    }
}
