//! Metadata of a model file: typed values, and getters whose errors name key, found type and wanted type.

use std::collections::BTreeMap;

use crate::FormatError;

/// Type of a metadata value or of an array's elements, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the format's")]
#[repr(u32)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    pub(super) fn from_id(id: u32) -> Option<Self> {
        use ValueType::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64].into_iter().find(|ty| *ty as u32 == id)
    }

    /// Bytes of one value; `None` for strings and arrays.
    pub(super) fn bytes(self) -> Option<usize> {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            String | Array => None,
        }
    }

    fn name(self) -> &'static str {
        use ValueType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            String => "string",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the format's")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    /// An array of numbers or bools.
    Numbers(Numbers),
    /// An array of strings.
    Strings(Strings),
}

impl Value {
    /// The number of the value's type in the file, [`ValueType::Array`] for arrays.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
            Value::Numbers(_) | Value::Strings(_) => ValueType::Array,
        }
    }

    /// A scalar from its little-endian bytes; bools are 0 or 1. `bytes` has the type's size.
    pub(super) fn scalar(ty: ValueType, bytes: &[u8]) -> Option<Value> {
        fn le<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.try_into().expect("the caller reads the type's size")
        }
        Some(match ty {
            ValueType::U8 => Value::U8(bytes[0]),
            ValueType::I8 => Value::I8(bytes[0] as i8),
            ValueType::U16 => Value::U16(u16::from_le_bytes(le(bytes))),
            ValueType::I16 => Value::I16(i16::from_le_bytes(le(bytes))),
            ValueType::U32 => Value::U32(u32::from_le_bytes(le(bytes))),
            ValueType::I32 => Value::I32(i32::from_le_bytes(le(bytes))),
            ValueType::F32 => Value::F32(f32::from_le_bytes(le(bytes))),
            ValueType::Bool if bytes[0] < 2 => Value::Bool(bytes[0] == 1),
            ValueType::U64 => Value::U64(u64::from_le_bytes(le(bytes))),
            ValueType::I64 => Value::I64(i64::from_le_bytes(le(bytes))),
            ValueType::F64 => Value::F64(f64::from_le_bytes(le(bytes))),
            ValueType::Bool | ValueType::String | ValueType::Array => return None,
        })
    }

    fn as_i128(&self) -> Option<i128> {
        Some(match self {
            Value::U8(v) => (*v).into(),
            Value::I8(v) => (*v).into(),
            Value::U16(v) => (*v).into(),
            Value::I16(v) => (*v).into(),
            Value::U32(v) => (*v).into(),
            Value::I32(v) => (*v).into(),
            Value::U64(v) => (*v).into(),
            Value::I64(v) => (*v).into(),
            _ => return None,
        })
    }

    fn as_f32(&self) -> Option<f32> {
        match self {
            Value::F32(v) => Some(*v),
            Value::F64(v) => Some(*v as f32),
            _ => None,
        }
    }
}

/// Short enough for a line: long strings and arrays are cut.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::F32(v) => write!(f, "{v}"),
            Value::F64(v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::String(v) => write_cut(f, v, 60),
            Value::Numbers(numbers) => {
                write!(f, "{} x {}: [", numbers.len(), numbers.ty.name())?;
                for (i, value) in numbers.iter().take(6).enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(if numbers.len() > 6 { ", ...]" } else { "]" })
            }
            Value::Strings(strings) => {
                write!(f, "{} x string: [", strings.len())?;
                for (i, value) in strings.iter().take(6).enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    write_cut(f, value, 16)?;
                }
                f.write_str(if strings.len() > 6 { ", ...]" } else { "]" })
            }
            integer => write!(f, "{}", integer.as_i128().expect("every other variant is an integer")),
        }
    }
}

fn write_cut(f: &mut std::fmt::Formatter<'_>, text: &str, chars: usize) -> std::fmt::Result {
    match text.char_indices().nth(chars) {
        Some((at, _)) => write!(f, "{:?}...", &text[..at]),
        None => write!(f, "{text:?}"),
    }
}

/// An array of numbers or bools, as its bytes in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    ty: ValueType,
    bytes: Vec<u8>,
}

impl Numbers {
    /// From little-endian bytes. `None` when `ty` is no number type, the length does not fit it, or a bool is not 0 or 1.
    pub fn from_le_bytes(ty: ValueType, bytes: Vec<u8>) -> Option<Self> {
        let whole = bytes.len().is_multiple_of(ty.bytes()?);
        let bools = ty != ValueType::Bool || bytes.iter().all(|b| *b < 2);
        (whole && bools).then_some(Self { ty, bytes })
    }

    /// An array of i32.
    pub fn from_i32(values: &[i32]) -> Self {
        Self { ty: ValueType::I32, bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect() }
    }

    /// An array of f32.
    pub fn from_f32(values: &[f32]) -> Self {
        Self { ty: ValueType::F32, bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect() }
    }

    /// The elements' type.
    pub fn element_type(&self) -> ValueType {
        self.ty
    }

    /// The elements' bytes in little-endian order.
    pub fn as_le_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.size()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size(&self) -> usize {
        self.ty.bytes().expect("checked by the constructor")
    }

    /// The elements as scalar values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value> + '_ {
        self.bytes
            .chunks_exact(self.size())
            .map(|bytes| Value::scalar(self.ty, bytes).expect("checked by the constructor"))
    }
}

/// An array of strings in two allocations: all text, and where each string ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// From all text and the end of each string; `None` unless the ends ascend to the text's end on character borders.
    pub(super) fn new(text: String, ends: Vec<usize>) -> Option<Self> {
        let ordered = ends.is_sorted() && ends.last().copied().unwrap_or(0) == text.len();
        (ordered && ends.iter().all(|end| text.is_char_boundary(*end))).then_some(Self { text, ends })
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        (0..self.len()).map(|index| self.get(index).expect("index in range"))
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::default();
        for string in strings {
            all.text.push_str(string.as_ref());
            all.ends.push(all.text.len());
        }
        all
    }
}

/// The key-value part of a model file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Whether `key` is there.
    pub fn contains(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// All keys in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> + '_ {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Sets `key` and returns what it was.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        self.values.insert(key.into(), value)
    }

    /// A non-negative integer of any width, as u32.
    pub fn get_u32(&self, key: &str) -> Result<u32, FormatError> {
        self.integer(key, "an integer from 0 to 4294967295")
    }

    /// As [`Self::get_u32`], with a default when the key is absent (not when its value is wrong).
    pub fn get_u32_or(&self, key: &str, default: u32) -> Result<u32, FormatError> {
        self.optional(key, default, Self::get_u32)
    }

    /// A non-negative integer of any width, as u64.
    pub fn get_u64(&self, key: &str) -> Result<u64, FormatError> {
        self.integer(key, "a non-negative integer")
    }

    /// A floating point number, rounded to f32.
    pub fn get_f32(&self, key: &str) -> Result<f32, FormatError> {
        self.typed(key, "a floating point number", Value::as_f32)
    }

    /// As [`Self::get_f32`], with a default when the key is absent.
    pub fn get_f32_or(&self, key: &str, default: f32) -> Result<f32, FormatError> {
        self.optional(key, default, Self::get_f32)
    }

    /// A truth value.
    pub fn get_bool(&self, key: &str) -> Result<bool, FormatError> {
        self.typed(key, "a bool", |value| if let Value::Bool(v) = value { Some(*v) } else { None })
    }

    /// As [`Self::get_bool`], with a default when the key is absent.
    pub fn get_bool_or(&self, key: &str, default: bool) -> Result<bool, FormatError> {
        self.optional(key, default, Self::get_bool)
    }

    /// A string.
    pub fn get_str(&self, key: &str) -> Result<&str, FormatError> {
        self.typed(key, "a string", |value| if let Value::String(v) = value { Some(v.as_str()) } else { None })
    }

    /// As [`Self::get_str`], with a default when the key is absent.
    pub fn get_str_or<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str, FormatError> {
        if self.contains(key) { self.get_str(key) } else { Ok(default) }
    }

    /// An array of strings.
    pub fn get_strings(&self, key: &str) -> Result<&Strings, FormatError> {
        self.typed(key, "an array of strings", |value| if let Value::Strings(v) = value { Some(v) } else { None })
    }

    /// An array of numbers in the file's own type.
    pub fn get_numbers(&self, key: &str) -> Result<&Numbers, FormatError> {
        self.typed(key, "an array of numbers", |value| if let Value::Numbers(v) = value { Some(v) } else { None })
    }

    /// An array of non-negative integers of any width, as u32.
    pub fn get_u32s(&self, key: &str) -> Result<Vec<u32>, FormatError> {
        let wanted = "an array of integers from 0 to 4294967295";
        let fits = |value: Value| value.as_i128().and_then(|v| u32::try_from(v).ok());
        let values = self.get_numbers(key)?.iter().map(fits).collect::<Option<_>>();
        values.ok_or_else(|| self.wrong_type(key, wanted))
    }

    /// An array of floating point numbers, rounded to f32.
    pub fn get_f32s(&self, key: &str) -> Result<Vec<f32>, FormatError> {
        let values = self.get_numbers(key)?.iter().map(|value| value.as_f32()).collect::<Option<_>>();
        values.ok_or_else(|| self.wrong_type(key, "an array of floating point numbers"))
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, wanted: &'static str) -> Result<T, FormatError> {
        self.typed(key, wanted, |value| value.as_i128().and_then(|v| T::try_from(v).ok()))
    }

    fn optional<T>(
        &self,
        key: &str,
        default: T,
        get: impl FnOnce(&Self, &str) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        if self.contains(key) { get(self, key) } else { Ok(default) }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, FormatError> {
        let value = self.get(key).ok_or_else(|| FormatError::MissingKey { key: key.to_owned(), wanted })?;
        convert(value).ok_or_else(|| self.wrong_type(key, wanted))
    }

    fn wrong_type(&self, key: &str, wanted: &'static str) -> FormatError {
        let found = self.get(key).map_or_else(String::new, |value| match value {
            Value::Numbers(_) | Value::Strings(_) => format!("an array ({value})"),
            value => format!("the {} {value}", value.value_type().name()),
        });
        FormatError::WrongType { key: key.to_owned(), found, wanted }
    }
}
