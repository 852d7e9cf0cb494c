//! Round trips, and one test for each way a file can lie.

use super::*;

fn small() -> GgufWriter {
    GgufWriter::new()
        .set("general.architecture", "llama")
        .set("llama.block_count", 2u32)
        .set("llama.rope.freq_base", 1e4f32)
        .set("a.bool", true)
        .set("a.u64", u64::MAX)
        .set("a.i8", -3i8)
        .set("a.f64", 0.5f64)
        .set("a.words", Strings::from_iter(["one", "", "drei"]))
        .set("a.numbers", Numbers::from_i32(&[1, -2, 3]))
        .set("a.floats", Numbers::from_f32(&[0.5, 2.0]))
        .tensor("b.weight", &[32, 3], GgmlType::Q8_0, (0..102).collect())
        .tensor("a.norm", &[5], GgmlType::F32, (0..20).collect())
        .tensor("c.weight", &[4, 2, 2, 2], GgmlType::F16, (0..64).collect())
}

#[track_caller]
fn refused(bytes: Vec<u8>, parts: &[&str]) {
    let message = Gguf::from_bytes(bytes).map(|_| ()).unwrap_err().to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message:?} should name {parts:?}");
}

/// A header written by hand: version, counts, then whatever.
fn raw(n_tensors: u64, n_keys: u64, rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(n_tensors.to_le_bytes());
    bytes.extend(n_keys.to_le_bytes());
    rest.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

fn tensor_info(name: &str, shape: &[u64], id: u32, offset: u64) -> Vec<u8> {
    let mut bytes = text(name.as_bytes());
    bytes.extend((shape.len() as u32).to_le_bytes());
    shape.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
    bytes.extend(id.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

#[test]
fn a_written_file_reads_back() {
    for version in [2, 3] {
        let gguf = Gguf::from_bytes(small().version(version).to_bytes()).unwrap();
        assert_eq!((gguf.version(), gguf.alignment()), (version, 32));
        let metadata = gguf.metadata();
        assert_eq!(metadata.get_str("general.architecture").unwrap(), "llama");
        assert_eq!(metadata.get_u32("llama.block_count").unwrap(), 2);
        assert_eq!(metadata.get_u32_or("absent", 7).unwrap(), 7);
        assert_eq!(metadata.get_u64("a.u64").unwrap(), u64::MAX);
        assert_eq!(metadata.get_f32("a.f64").unwrap(), 0.5);
        assert!(metadata.get_bool("a.bool").unwrap());
        assert_eq!(metadata.get_strings("a.words").unwrap().iter().collect::<Vec<_>>(), ["one", "", "drei"]);
        assert_eq!(metadata.get_numbers("a.numbers").unwrap(), &Numbers::from_i32(&[1, -2, 3]));
        assert_eq!(metadata.get_f32s("a.floats").unwrap(), [0.5, 2.0]);

        let names: Vec<&str> = gguf.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["b.weight", "a.norm", "c.weight"]);
        let norm = gguf.tensor("a.norm").unwrap();
        assert_eq!((norm.shape.as_slice(), norm.ty, norm.n_bytes), ([5].as_slice(), GgmlType::F32, 20));
        assert_eq!(gguf.read(norm).unwrap(), (0..20).collect::<Vec<u8>>());
        let mut middle = [0; 34];
        gguf.read_at(gguf.tensor("b.weight").unwrap(), 34, &mut middle).unwrap();
        assert_eq!(middle[..3], [34, 35, 36]);
        assert_eq!(gguf.tensor("c.weight").unwrap().n_rows(), 8);
        assert!(gguf.find("d").is_none());
    }
}

#[test]
fn alignment_is_followed() {
    let gguf = Gguf::from_bytes(small().set("general.alignment", 128u32).to_bytes()).unwrap();
    assert!(gguf.tensors().iter().all(|tensor| tensor.offset % 128 == 0));
    assert_eq!(gguf.read(gguf.tensor("a.norm").unwrap()).unwrap()[3], 3);
    for bad in [0u32, 24, 1 << 21] {
        let bytes = GgufWriter::new().set("general.alignment", bad).to_bytes();
        refused(bytes, &["general.alignment", &bad.to_string(), "power of two"]);
    }
}

#[test]
fn getters_name_key_and_types() {
    let gguf = Gguf::from_bytes(small().to_bytes()).unwrap();
    let metadata = gguf.metadata();
    let message = |error: FormatError| error.to_string();
    let wrong = message(metadata.get_u32("general.architecture").unwrap_err());
    assert_eq!(
        wrong,
        "metadata \"general.architecture\" is the string \"llama\", expected an integer from 0 to 4294967295"
    );
    assert!(message(metadata.get_u32("a.i8").unwrap_err()).contains("the i8 -3"));
    assert!(message(metadata.get_u32("a.u64").unwrap_err()).contains("18446744073709551615"));
    assert!(message(metadata.get_str("a.words").unwrap_err()).contains("an array (3 x string"));
    assert!(message(metadata.get_u32s("a.numbers").unwrap_err()).contains("1, -2, 3"));
    assert!(message(metadata.get_f32("none").unwrap_err()).contains("\"none\" is missing"));
    assert!(metadata.get_bool_or("a.words", true).is_err());
}

#[test]
fn wrong_kinds_of_file() {
    refused(vec![], &["not a GGUF file", "it is empty"]);
    refused(b"PK\x03\x04....".to_vec(), &["not a GGUF file", "PK"]);
    refused(b"GGUF\x00\x00\x00\x03........".to_vec(), &["big-endian"]);
    refused(b"GGUF\x01\x00\x00\x00........".to_vec(), &["version 1", "convert"]);
    refused(b"GGUF\x63\x00\x00\x00........".to_vec(), &["version 99"]);
    let folder = tempfile::tempdir().unwrap();
    let message = Gguf::open(folder.path()).unwrap_err().to_string();
    assert!(message.contains("a directory"), "{message}");
    let message = Gguf::open(folder.path().join("none.gguf")).unwrap_err().to_string();
    assert!(message.contains("none.gguf: cannot open"), "{message}");
}

#[test]
fn hostile_counts_and_lengths() {
    refused(raw(u64::MAX, 0, &[]), &["number of tensors", "18446744073709551615"]);
    refused(raw(0, 1 << 40, &[]), &["metadata keys", "1099511627776"]);
    refused(raw(0, 1, &[&u64::MAX.to_le_bytes()]), &["metadata key 0", "18446744073709551615"]);
    refused(raw(0, 1, &[&60_000u64.to_le_bytes()]), &["truncated", "60000"]);
    refused(raw(0, 1, &[&text(b"\xff\xfe"), &0u32.to_le_bytes(), &[0]]), &["metadata key 0", "UTF-8"]);
    let key = text(b"k");
    let le = |value: u32| value.to_le_bytes();
    refused(raw(0, 1, &[&key, &le(8), &(1u64 << 62).to_le_bytes()]), &["\"k\"", "4611686018427387904"]);
    refused(raw(0, 1, &[&key, &le(8), &text(b"\xc3")]), &["\"k\"", "UTF-8"]);
    refused(raw(0, 1, &[&key, &le(13), &le(0)]), &["\"k\"", "value type 13"]);
    refused(raw(0, 1, &[&key, &le(7), &[2]]), &["\"k\"", "is 2", "bool"]);
    // Arrays: more elements than the file has bytes, a product that overflows, arrays of arrays, a lying string.
    let array = |ty: u32, n: u64, rest: &[u8]| raw(0, 1, &[&key, &le(9), &le(ty), &n.to_le_bytes(), rest]);
    refused(array(0, 1 << 50, &[]), &["\"k\"", "1125899906842624"]);
    refused(array(10, u64::MAX / 4, &[]), &["\"k\"", "truncated"]);
    refused(array(8, u64::MAX / 8 + 1, &[]), &["\"k\"", "truncated"]);
    refused(array(8, 1, &u64::MAX.to_le_bytes()), &["\"k\"", "truncated"]);
    refused(array(8, 2, &[text(b"ok"), text(b"\xc3")].concat()), &["\"k\"", "UTF-8"]);
    refused(array(8, 2, &[text(b"\xc3"), text(b"\xa9")].concat()), &["\"k\"", "UTF-8"]);
    refused(array(9, 1, &[0; 32]), &["\"k\"", "array of arrays"]);
    refused(array(7, 2, &[1, 3]), &["\"k\"", "bool"]);
    refused(raw(0, 2, &[&key, &le(0), &[1], &key, &le(0), &[1]]), &["metadata", "\"k\"", "twice"]);
}

#[test]
fn hostile_tensors() {
    let one = |shape: &[u64], id, offset| {
        let mut bytes = raw(1, 0, &[&tensor_info("t", shape, id, offset)]);
        bytes.resize(bytes.len().next_multiple_of(32) + 64, 0);
        bytes
    };
    assert!(Gguf::from_bytes(one(&[16], 0, 0)).is_ok());
    refused(one(&[], 0, 0), &["\"t\"", "0 dimensions"]);
    refused(one(&[1, 1, 1, 1, 1], 0, 0), &["\"t\"", "5 dimensions"]);
    refused(one(&[4, 0], 0, 0), &["\"t\"", "[4, 0]"]);
    refused(one(&[u64::MAX, u64::MAX], 0, 0), &["\"t\"", "address space"]);
    refused(one(&[1 << 32, 1 << 32], 24, 0), &["\"t\"", "address space"]);
    refused(one(&[1 << 40], 0, 0), &["\"t\"", "truncated"]);
    refused(one(&[16], 2, 0), &["\"t\"", "rows of 16", "32"]);
    refused(one(&[16], 4, 0), &["\"t\"", "Q4_2", "Q4_K"]);
    refused(one(&[16], 12345, 0), &["\"t\"", "unknown type 12345"]);
    refused(one(&[16], 0, 1), &["\"t\"", "offset 1", "alignment"]);
    refused(one(&[16], 0, 32), &["\"t\"", "truncated"]);
    refused(one(&[16], 0, u64::MAX - 31), &["\"t\"", "truncated"]);
    let two = |a: &str, b: &str, offset| {
        let mut bytes = raw(2, 0, &[&tensor_info(a, &[16], 0, 0), &tensor_info(b, &[8], 0, offset)]);
        bytes.resize(bytes.len().next_multiple_of(32) + 96, 0);
        bytes
    };
    assert!(Gguf::from_bytes(two("a", "b", 64)).is_ok());
    refused(two("a", "a", 64), &["tensor \"a\"", "twice"]);
    refused(two("a", "b", 32), &["tensor \"b\"", "inside tensor \"a\""]);
    refused(raw(1, 0, &[&tensor_info(&"x".repeat(65), &[1], 0, 0)]), &["tensor 0", "65", "64"]);
}

#[test]
fn an_unsupported_type_is_listed_by_name() {
    let gguf = GgufWriter::new().tensor("t", &[256], GgmlType::IQ2_XS, vec![0; 74]);
    let gguf = Gguf::from_bytes(gguf.to_bytes()).unwrap();
    assert_eq!(gguf.summary().unsupported, [("IQ2_XS".to_owned(), "t".to_owned())]);
}

#[test]
fn a_file_cut_short_meanwhile_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    small().write(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let len = gguf.file_len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len - 60).unwrap();
    let message = gguf.read(gguf.tensor("c.weight").unwrap()).unwrap_err().to_string();
    assert!(message.contains("model.gguf") && message.contains("c.weight") && message.contains("changed"), "{message}");
    assert!(gguf.read(gguf.tensor("a.norm").unwrap()).is_ok());
    let message = Gguf::open(&path).unwrap_err().to_string();
    assert!(message.contains("c.weight") && message.contains("truncated"), "{message}");
}

#[test]
fn reads_outside_the_tensor_are_refused() {
    let gguf = Gguf::from_bytes(small().to_bytes()).unwrap();
    let norm = gguf.tensor("a.norm").unwrap();
    assert!(gguf.read_at(norm, 20, &mut []).is_ok());
    assert!(gguf.read_at(norm, 20, &mut [0]).is_err());
    assert!(gguf.read_at(norm, usize::MAX, &mut [0; 2]).is_err());
}

#[test]
fn the_summary_adds_up() {
    let summary = Gguf::from_bytes(small().to_bytes()).unwrap().summary();
    assert_eq!(summary.architecture.as_deref(), Some("llama"));
    assert_eq!(summary.n_layers, Some(2));
    assert_eq!(summary.parameters, 96 + 5 + 32);
    assert_eq!(summary.tensor_bytes, 102 + 20 + 64);
    assert_eq!(summary.types[0].ty, "Q8_0");
}
