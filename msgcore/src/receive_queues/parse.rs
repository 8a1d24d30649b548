//! Reading receive queues, and refusing those that could not work.

use std::str::FromStr;

use arrayvec::ArrayVec;

use super::error::{Entry, ReceiveQueuesError as Error};
use super::{Kind, MAX_CREDITS_TOGETHER, ReceiveQueue, ReceiveQueues};
use crate::units::parse_size;

const PER_PEER_FORM: &str = "P,size,num[,low[,win[,rsv]]]";
const SHARED_FORM: &str = "S,size,num[,low[,maxsends[,init[,limit]]]]";
/// Fields of the two forms, with the letter.
const PER_PEER_FIELDS: usize = 6;
const SHARED_FIELDS: usize = 7;

/// A buffer holds a header and something more; what is longer than the largest is better fetched than copied.
const MIN_SIZE: usize = 256;
const MAX_SIZE: usize = 1 << 20;
/// One buffer could not be used and given back at the same time.
const MIN_NUM: u32 = 2;
const MAX_NUM_PER_PEER: u32 = 4096;
const MAX_NUM_SHARED: u32 = 65_536;
/// Of the smallest returns two may be on their way: of the last credit, and of the one before it.
const MIN_RESERVE: u32 = 2;
/// No default is larger: every single credit of twice [`MAX_NUM_PER_PEER`] returned by itself.
const MAX_RESERVE: u32 = 2 * MAX_NUM_PER_PEER;

impl FromStr for ReceiveQueues {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::Empty);
        }
        let mut queues = ArrayVec::new();
        let mut former: Option<(Fields<'_>, usize)> = None;
        for (text, number) in text.split(':').zip(1..) {
            let fields = Fields::new(number, text.trim());
            if queues.is_full() {
                return Err(Error::TooManyEntries(fields.entry()));
            }
            let queue = fields.queue()?;
            if let Some((former, size)) = &former
                && queue.size <= *size
            {
                return Err(Error::NotAscending { former: former.entry(), latter: fields.entry() });
            }
            former = Some((fields, queue.size));
            queues.push(queue);
        }
        let credits: u64 = queues.iter().map(|queue| u64::from(queue.kind.credits())).sum();
        if queues.len() > 1 && credits > u64::from(MAX_CREDITS_TOGETHER) {
            return Err(Error::TooManyCredits { credits, most: MAX_CREDITS_TOGETHER });
        }
        Ok(Self(queues))
    }
}

/// One entry, cut at its commas.
struct Fields<'a> {
    number: usize,
    text: &'a str,
}

impl Fields<'_> {
    fn new(number: usize, text: &str) -> Fields<'_> {
        Fields { number, text }
    }

    /// The entry as an error names it.
    fn entry(&self) -> Entry {
        Entry { number: self.number, text: self.text.to_owned() }
    }

    fn queue(&self) -> Result<ReceiveQueue, Error> {
        match self.field(0).unwrap_or_default() {
            "P" => self.per_peer(),
            "S" => self.shared(),
            "X" => Err(Error::Xrc(self.entry())),
            kind => Err(Error::UnknownKind { entry: self.entry(), kind: kind.into() }),
        }
    }

    fn per_peer(&self) -> Result<ReceiveQueue, Error> {
        let (size, num) = self.size_and_num(PER_PEER_FORM, PER_PEER_FIELDS, MAX_NUM_PER_PEER)?;
        let low = self.low(num)?;
        let window = self.window(num, low)?;
        let reserve = self.reserve((2 * num - 1) / window)?;
        Ok(ReceiveQueue { kind: Kind::PerPeer { num, low, window, reserve }, size })
    }

    fn shared(&self) -> Result<ReceiveQueue, Error> {
        let (size, num) = self.size_and_num(SHARED_FORM, SHARED_FIELDS, MAX_NUM_SHARED)?;
        let low = self.low(num)?;
        let max_sends = self.number(4, "maxsends")?.unwrap_or((low / 4).max(1));
        if !(1..=num).contains(&max_sends) {
            return Err(Error::MaxSends { entry: self.entry(), max_sends, num });
        }
        let init = self.number(5, "init")?.unwrap_or((num / 4).max(1));
        if !(1..=num).contains(&init) {
            return Err(Error::Init { entry: self.entry(), init, num });
        }
        let limit = self.number(6, "limit")?.unwrap_or((init * 3 / 16).max(1));
        if limit > num {
            return Err(Error::Limit { entry: self.entry(), limit, num });
        }
        Ok(ReceiveQueue { kind: Kind::Shared { num, low, max_sends, init, limit }, size })
    }

    /// What both kinds begin with, and have no default for.
    fn size_and_num(&self, form: &'static str, fields: usize, most: u32) -> Result<(usize, u32), Error> {
        let given = self.text.split(',').count();
        if given > fields {
            return Err(Error::TooManyFields { entry: self.entry(), given, form });
        }
        let missing = |field| Error::MissingField { entry: self.entry(), field, form };
        let size = self.size(self.field(1).ok_or_else(|| missing("size"))?)?;
        let num = self.number(2, "num")?.ok_or_else(|| missing("num"))?;
        self.within("num", num, MIN_NUM, most)?;
        Ok((size, num))
    }

    fn size(&self, value: &str) -> Result<usize, Error> {
        let size = parse_size(value);
        let size = size.ok_or_else(|| Error::NotASize { entry: self.entry(), value: value.into() })?;
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
            return Err(Error::SizeRange { entry: self.entry(), size, least: MIN_SIZE, most: MAX_SIZE });
        }
        Ok(size)
    }

    fn low(&self, num: u32) -> Result<u32, Error> {
        let low = self.number(3, "low")?.unwrap_or(num / 2);
        if low >= num {
            return Err(Error::LowNotBelowNum { entry: self.entry(), low, num });
        }
        Ok(low)
    }

    fn window(&self, num: u32, low: u32) -> Result<u32, Error> {
        let most = max_window(num, low);
        match self.number(4, "win")?.unwrap_or((low / 2).max(1)) {
            0 => Err(Error::WindowZero { entry: self.entry(), most }),
            window if window > num => Err(Error::WindowAboveNum { entry: self.entry(), window, num, most }),
            window if window > most => Err(Error::CreditsCannotFlow { entry: self.entry(), window, most }),
            window => Ok(window),
        }
    }

    fn reserve(&self, default: u32) -> Result<u32, Error> {
        match self.number(5, "rsv")?.unwrap_or(default) {
            0 => Err(Error::ReserveZero { entry: self.entry(), most: MAX_RESERVE }),
            reserve => self.within("rsv", reserve, MIN_RESERVE, MAX_RESERVE),
        }
    }

    fn within(&self, field: &'static str, value: u32, least: u32, most: u32) -> Result<u32, Error> {
        if !(least..=most).contains(&value) {
            return Err(Error::Range { entry: self.entry(), field, value, least, most });
        }
        Ok(value)
    }

    /// The count at this place, if there is one.
    fn number(&self, place: usize, field: &'static str) -> Result<Option<u32>, Error> {
        let Some(value) = self.field(place) else { return Ok(None) };
        let number = value.parse().ok();
        let number = number.ok_or_else(|| Error::NotANumber { entry: self.entry(), field, value: value.into() })?;
        Ok(Some(number))
    }

    /// What was given at this place, if anything was.
    fn field(&self, place: usize) -> Option<&str> {
        self.text.split(',').nth(place).map(str::trim).filter(|field| !field.is_empty())
    }
}

/// The largest window with which credits flow. Buffers are posted again in batches of `num - low`, and credits are
/// owed for whole batches only; so of a peer that has spent all it had, a part of a batch is not owed yet. And one that
/// must spend its very last credit before any returns would stand still once in every window.
fn max_window(num: u32, low: u32) -> u32 {
    (num - num % (num - low)).min(num - 1)
}
