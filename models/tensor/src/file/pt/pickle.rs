//! The part of Python's pickle that `torch.save` writes for tensors.
//!
//! A pickle is a program for a small stack machine; Python's own machine can
//! call any function of any module. This one knows dictionaries, lists, plain
//! values and the names in [`global`], and refuses every other name and
//! opcode. It needs no more memory than a small multiple of its input.

use crate::{Dtype, Error};

pub const FORMAT: &str = "PyTorch";

/// The file is damaged there.
pub fn malformed(offset: u64, problem: impl Into<String>) -> Error {
    Error::malformed(FORMAT, offset, problem)
}

/// The file is sound and asks for what is not done here.
pub fn unsupported(offset: u64, what: impl Into<String>) -> Error {
    Error::unsupported(FORMAT, offset, what)
}

/// A value on the stack.
#[derive(Debug, Clone, PartialEq)]
pub enum Built {
    None,
    Integer(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Built>),
    /// A list or a dictionary, which may change after it was remembered.
    Object(usize),
    Global(Global),
    Storage(Storage),
    Tensor(TensorRef),
}

impl Built {
    /// As a part of a tensor's name.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            _ => "?".into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    List(Vec<Built>),
    Dict(Vec<(Built, Built)>),
}

/// A storage: values of one format in a member of the archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    pub dtype: Dtype,
    /// The format's name where `dtype` only stands in for it.
    pub stored: &'static str,
    pub key: String,
}

/// A tensor: a view into a storage, counted in values.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRef {
    pub storage: Storage,
    pub offset: u64,
    pub shape: Vec<usize>,
    pub stride: Vec<u64>,
}

/// The names of Python that this machine knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Global {
    OrderedDict,
    RebuildTensor,
    RebuildParameter,
    Size,
    Device,
    /// A storage's type, or a number format.
    Format(Dtype, &'static str),
    UntypedStorage,
}

fn global(module: &str, name: &str) -> Option<Global> {
    let format = |dtype: Dtype| Some(Global::Format(dtype, dtype.name()));
    match (module, name) {
        ("collections", "OrderedDict") => Some(Global::OrderedDict),
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3") => {
            Some(Global::RebuildTensor)
        }
        ("torch._utils", "_rebuild_parameter") => Some(Global::RebuildParameter),
        ("torch", "Size") => Some(Global::Size),
        ("torch", "device") => Some(Global::Device),
        ("torch.storage", "UntypedStorage") => Some(Global::UntypedStorage),
        ("torch", "DoubleStorage" | "float64") => format(Dtype::F64),
        ("torch", "FloatStorage" | "float32") => format(Dtype::F32),
        ("torch", "HalfStorage" | "float16") => format(Dtype::F16),
        ("torch", "BFloat16Storage" | "bfloat16") => format(Dtype::Bf16),
        ("torch", "float8_e4m3fn") => format(Dtype::F8e4m3),
        ("torch", "float8_e5m2") => format(Dtype::F8e5m2),
        ("torch", "CharStorage" | "int8") => format(Dtype::I8),
        ("torch", "ByteStorage" | "uint8") => format(Dtype::U8),
        ("torch", "BoolStorage" | "bool") => Some(Global::Format(Dtype::U8, "bool")),
        ("torch", "ShortStorage" | "int16") => format(Dtype::I16),
        ("torch", "IntStorage" | "int32") => format(Dtype::I32),
        ("torch", "LongStorage" | "int64") => format(Dtype::I64),
        _ => None,
    }
}

/// Values that may be copied out of the memo, and how many more for every byte read: names
/// and shapes are recalled by two bytes each, and tuples in tuples would double without end.
const COPIED: (usize, usize) = (1 << 16, 64);

/// The stack machine, and after its run what it built.
#[derive(Debug)]
pub struct Machine {
    pub root: Built,
    pub objects: Vec<Object>,
}

/// A run in progress.
struct Run<'p> {
    pickle: &'p [u8],
    /// Where in its file the pickle begins.
    start: u64,
    position: usize,
    stack: Vec<Built>,
    marks: Vec<usize>,
    memo: Vec<Option<Built>>,
    objects: Vec<Object>,
    /// Values copied out of the memo.
    copied: usize,
}

impl Machine {
    /// Runs a pickle that begins at byte `start` of its file.
    pub fn run(pickle: &[u8], start: u64) -> Result<Self, Error> {
        let mut run = Run {
            pickle,
            start,
            position: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            objects: Vec::new(),
            copied: 0,
        };
        while !run.step()? {}
        let root = run.pop()?;
        Ok(Self { root, objects: run.objects })
    }
}

impl Run<'_> {
    fn damaged(&self, what: impl Into<String>) -> Error {
        malformed(self.start + self.position as u64, what)
    }

    fn refused(&self, what: impl Into<String>) -> Error {
        unsupported(self.start + self.position as u64, what)
    }

    fn bytes(&mut self, len: usize) -> Result<&[u8], Error> {
        let end = self.position.checked_add(len).filter(|&end| end <= self.pickle.len());
        let end = end.ok_or_else(|| self.damaged(format!("the pickle ends inside {len} bytes")))?;
        let start = std::mem::replace(&mut self.position, end);
        Ok(&self.pickle[start..end])
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.bytes(N)?;
        Ok(std::array::from_fn(|i| bytes[i]))
    }

    fn length<const N: usize>(&mut self) -> Result<usize, Error> {
        let bytes = self.number::<N>()?;
        let value = bytes.iter().rev().try_fold(0usize, |v, &b| Some(v.checked_mul(256)? + usize::from(b)));
        value.ok_or_else(|| self.damaged("a length beyond memory"))
    }

    fn text(&mut self, len: usize) -> Result<String, Error> {
        let bytes = self.bytes(len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.damaged("a string that is not UTF-8"))
    }

    fn line(&mut self) -> Result<String, Error> {
        let rest = &self.pickle[self.position..];
        let len = rest.iter().position(|&b| b == b'\n').ok_or_else(|| self.damaged("a line without end"))?;
        let line = self.text(len)?;
        self.position += 1;
        Ok(line)
    }

    fn pop(&mut self) -> Result<Built, Error> {
        // Nothing below a mark is for the taking.
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.damaged("the pickle's stack is empty"));
        }
        self.stack.pop().ok_or_else(|| self.damaged("the pickle's stack is empty"))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Built>, Error> {
        let mark = self.marks.pop().ok_or_else(|| self.damaged("no mark on the pickle's stack"))?;
        Ok(self.stack.split_off(mark))
    }

    fn push_object(&mut self, object: Object) {
        self.objects.push(object);
        self.stack.push(Built::Object(self.objects.len() - 1));
    }

    fn remember(&mut self, slot: usize) -> Result<(), Error> {
        if slot > self.pickle.len() {
            return Err(self.damaged(format!("memo slot {slot}")));
        }
        let top = self.stack.last().cloned().ok_or_else(|| self.damaged("nothing to remember"))?;
        self.charge(&top)?;
        if slot >= self.memo.len() {
            self.memo.resize(slot + 1, None);
        }
        self.memo[slot] = Some(top);
        Ok(())
    }

    fn recall(&mut self, slot: usize) -> Result<(), Error> {
        let value = self.memo.get(slot).cloned().flatten();
        let value = value.ok_or_else(|| self.damaged(format!("memo slot {slot} is empty")))?;
        self.charge(&value)?;
        self.stack.push(value);
        Ok(())
    }

    /// Counts what copying a value takes.
    fn charge(&mut self, value: &Built) -> Result<(), Error> {
        fn size(value: &Built) -> usize {
            match value {
                Built::Tuple(items) => 1 + items.iter().map(size).sum::<usize>(),
                Built::Text(text) => 1 + text.len() / 32,
                _ => 1,
            }
        }
        self.copied += size(value);
        let most = COPIED.0.saturating_add(COPIED.1.saturating_mul(self.position));
        if self.copied > most { Err(self.damaged("values that unfold without end")) } else { Ok(()) }
    }

    /// Runs one opcode; true at the last.
    fn step(&mut self) -> Result<bool, Error> {
        let [opcode] = self.number()?;
        match opcode {
            // PROTO and FRAME say nothing this machine needs.
            0x80 => drop(self.number::<1>()?),
            0x95 => drop(self.number::<8>()?),
            b'.' => return Ok(true),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'}' => self.push_object(Object::Dict(Vec::new())),
            b']' => self.push_object(Object::List(Vec::new())),
            b'q' | b'r' => {
                let slot = if opcode == b'q' { self.length::<1>()? } else { self.length::<4>()? };
                self.remember(slot)?;
            }
            0x94 => self.remember(self.memo.len())?,
            b'h' | b'j' => {
                let slot = if opcode == b'h' { self.length::<1>()? } else { self.length::<4>()? };
                self.recall(slot)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push_global(&module, &name)?;
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Built::Text(name), Built::Text(module)) => self.push_global(&module, &name)?,
                _ => return Err(self.damaged("a name that is no text")),
            },
            b'a' | b'e' | b's' | b'u' => self.fill(opcode)?,
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            b'Q' => self.storage()?,
            b't' | 0x85..=0x87 | b')' => self.tuple(opcode)?,
            _ => {
                let value = self.constant(opcode)?;
                self.stack.push(value);
            }
        }
        Ok(false)
    }

    /// None, booleans, numbers and strings.
    fn constant(&mut self, opcode: u8) -> Result<Built, Error> {
        Ok(match opcode {
            b'N' => Built::None,
            0x88 => Built::Integer(1),
            0x89 => Built::Integer(0),
            b'J' => Built::Integer(i32::from_le_bytes(self.number()?).into()),
            b'K' => Built::Integer(self.length::<1>()? as i64),
            b'M' => Built::Integer(self.length::<2>()? as i64),
            0x8a => {
                let len = self.length::<1>()?;
                let bytes = self.bytes(len)?;
                if bytes.len() > 8 {
                    return Err(self.refused("an integer of more than 64 bits"));
                }
                let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
                let mut wide = [fill; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                Built::Integer(i64::from_le_bytes(wide))
            }
            b'G' => Built::Float(f64::from_be_bytes(self.number()?)),
            0x8c | b'U' | b'X' | b'T' | 0x8d => {
                let len = match opcode {
                    0x8c | b'U' => self.length::<1>()?,
                    0x8d => self.length::<8>()?,
                    _ => self.length::<4>()?,
                };
                Built::Text(self.text(len)?)
            }
            // Bytes are of no use here, and harmless.
            b'C' | b'B' => {
                let len = if opcode == b'C' { self.length::<1>()? } else { self.length::<4>()? };
                self.bytes(len)?;
                Built::None
            }
            0x81 | 0x92 | b'i' | b'o' => {
                return Err(self.refused("a pickle that makes objects of a class"));
            }
            other => return Err(self.refused(format!("pickle opcode {other:#04x}"))),
        })
    }

    fn push_global(&mut self, module: &str, name: &str) -> Result<(), Error> {
        let known = global(module, name).ok_or_else(|| {
            let shown = format!("{module}.{name}").escape_debug().to_string();
            self.refused(format!(
                "`{shown}`, which its pickle wants to use: reading tensors runs no code, so it"
            ))
        })?;
        self.stack.push(Built::Global(known));
        Ok(())
    }

    fn tuple(&mut self, opcode: u8) -> Result<(), Error> {
        let items = match opcode {
            b')' => Vec::new(),
            b't' => self.pop_to_mark()?,
            _ => {
                let mut items = Vec::new();
                for _ in 0x85..=opcode {
                    items.push(self.pop()?);
                }
                items.reverse();
                items
            }
        };
        // Depth is bounded so that walking a tuple needs no more than a little stack.
        if items.iter().any(|item| depth(item) > 64) {
            return Err(self.damaged("tuples nested more than 64 deep"));
        }
        self.stack.push(Built::Tuple(items));
        Ok(())
    }

    /// APPEND, APPENDS, SETITEM and SETITEMS.
    fn fill(&mut self, opcode: u8) -> Result<(), Error> {
        let items = match opcode {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_to_mark()?,
        };
        let target = match self.stack.last() {
            Some(Built::Object(index)) => self.objects.get_mut(*index),
            _ => None,
        };
        match (opcode, target) {
            (b'a' | b'e', Some(Object::List(list))) => list.extend(items),
            (b's' | b'u', Some(Object::Dict(pairs))) if items.len().is_multiple_of(2) => {
                let mut items = items.into_iter();
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    pairs.push((key, value));
                }
            }
            _ => return Err(self.damaged("items for something that takes none")),
        }
        Ok(())
    }

    /// A call: only the few functions that make tensors and dictionaries.
    fn reduce(&mut self) -> Result<(), Error> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Built::Tuple(arguments), Built::Global(function)) = (arguments, function) else {
            return Err(self.damaged("a call of something that is no function"));
        };
        match function {
            Global::OrderedDict if arguments.is_empty() => self.push_object(Object::Dict(Vec::new())),
            Global::RebuildTensor => {
                let tensor = self.tensor(&arguments)?;
                self.stack.push(Built::Tensor(tensor));
            }
            Global::RebuildParameter => match arguments.into_iter().next() {
                Some(tensor @ Built::Tensor(_)) => self.stack.push(tensor),
                _ => return Err(self.damaged("a parameter without a tensor")),
            },
            Global::Size => self.stack.push(Built::Tuple(arguments)),
            Global::Device => self.stack.push(Built::None),
            other => {
                return Err(self.refused(format!("a call of {other:?} with {} arguments", arguments.len())));
            }
        }
        Ok(())
    }

    fn tensor(&self, arguments: &[Built]) -> Result<TensorRef, Error> {
        let bad = || self.damaged("a tensor whose storage, offset, shape or stride is none");
        let [Built::Storage(storage), Built::Integer(offset), Built::Tuple(shape), rest @ ..] = arguments
        else {
            return Err(bad());
        };
        let Some(Built::Tuple(stride)) = rest.first() else { return Err(bad()) };
        let mut storage = storage.clone();
        // The third version names the format of an untyped storage.
        if let Some(Built::Global(Global::Format(dtype, stored))) = rest.get(3) {
            (storage.dtype, storage.stored) = (*dtype, stored);
        }
        let unsigned = |values: &[Built]| -> Option<Vec<u64>> {
            let one = |value: &Built| match value {
                Built::Integer(value) => u64::try_from(*value).ok(),
                _ => None,
            };
            values.iter().map(one).collect()
        };
        let shape = unsigned(shape).ok_or_else(bad)?;
        Ok(TensorRef {
            storage,
            offset: u64::try_from(*offset).map_err(|_| bad())?,
            shape: shape.into_iter().map(usize::try_from).collect::<Result<_, _>>().map_err(|_| bad())?,
            stride: unsigned(stride).ok_or_else(bad)?,
        })
    }

    /// BUILD: attributes of a dictionary (`_metadata` of a state dict), which
    /// are not needed; anything else with attributes is refused.
    fn build(&mut self) -> Result<(), Error> {
        self.pop()?;
        match self.stack.last() {
            Some(Built::Object(_)) => Ok(()),
            _ => Err(self.refused("a pickle that sets attributes of an object")),
        }
    }

    /// A persistent id: `('storage', type, key, location, values)`.
    fn storage(&mut self) -> Result<(), Error> {
        let id = self.pop()?;
        let Built::Tuple(parts) = &id else { return Err(self.damaged("a storage without description")) };
        let storage = match parts.as_slice() {
            [Built::Text(kind), Built::Global(format), Built::Text(key), ..] if kind == "storage" => {
                let (dtype, stored) = match format {
                    Global::Format(dtype, stored) => (*dtype, *stored),
                    Global::UntypedStorage => (Dtype::U8, Dtype::U8.name()),
                    _ => return Err(self.damaged("a storage of no type")),
                };
                Storage { dtype, stored, key: key.clone() }
            }
            _ => return Err(self.damaged("a storage without description")),
        };
        self.stack.push(Built::Storage(storage));
        Ok(())
    }
}

fn depth(value: &Built) -> usize {
    match value {
        Built::Tuple(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
