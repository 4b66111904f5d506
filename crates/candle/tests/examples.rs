//! What a candle user has to change to train with several ranks.

#[test]
fn from_one_process_to_many_takes_few_lines() {
    let code = |text: &'static str| text.lines().filter(|line| !line.starts_with("//!")).collect::<Vec<_>>();
    let (plain, sharded) = (code(include_str!("../examples/plain.rs")), code(include_str!("../examples/sharded.rs")));
    let added: Vec<&&str> = sharded.iter().filter(|line| !plain.contains(line)).collect();
    assert!((5..=15).contains(&added.len()), "{added:#?}");
}
