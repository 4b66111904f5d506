//! Buffers: where their memory comes from, and splitting and joining it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn zeroed_is_zero_aligned_and_writable() {
    for byte_len in [0, 1, 63, 64, 4095, 4096, 100_003] {
        let mut buffer = Buffer::zeroed(byte_len);
        let align = if byte_len < 4096 { 64 } else { 4096 };
        assert_eq!(buffer.start.as_ptr().addr() % align, 0);
        assert_eq!((buffer.byte_len(), buffer.is_empty()), (byte_len, byte_len == 0));
        assert!(buffer.as_bytes().iter().all(|&byte| byte == 0));
        buffer.as_bytes_mut().fill(7);
        assert!(buffer.as_bytes().iter().all(|&byte| byte == 7));
    }
}

#[test]
fn memory_that_cannot_be_had_is_a_typed_error() {
    for byte_len in [usize::MAX, isize::MAX as usize - 4096] {
        let error = Buffer::try_zeroed(byte_len).expect_err("no machine has this much");
        assert_eq!(error, OutOfMemory { byte_len });
        assert!(error.to_string().contains(&byte_len.to_string()));
    }
}

#[test]
fn a_vec_comes_back_uncopied() {
    let mut elements = Vec::with_capacity(10);
    elements.extend([1.0_f32, 2.0, 3.0]);
    let (address, capacity) = (elements.as_ptr(), elements.capacity());
    let mut buffer = Buffer::from_vec(elements);
    buffer.as_mut_slice::<f32>().expect("made of f32")[1] = 5.0;
    let back = buffer.into_vec::<f32>().expect("whole");
    assert_eq!(back, [1.0, 5.0, 3.0]);
    assert_eq!((back.as_ptr(), back.capacity()), (address, capacity));
}

#[test]
fn an_empty_vec_and_one_of_units_come_back() {
    assert_eq!(Buffer::from_vec(Vec::<u64>::new()).into_vec::<u64>().expect("whole"), []);
    assert_eq!(Buffer::from_vec(vec![(); 5]).into_vec::<()>().expect("whole").len(), 5);
}

#[test]
fn another_type_a_piece_or_a_shared_whole_gives_the_buffer_back() {
    let buffer = Buffer::from_vec(vec![1_u32, 2, 3]).into_vec::<i32>().expect_err("another type");
    let (empty, whole) = buffer.split_at(0).expect("in range");
    let whole = whole.into_vec::<u32>().expect_err("a piece still lives");
    drop(empty);
    let (first, rest) = whole.split_at(4).expect("in range");
    drop(rest);
    let first = first.into_vec::<u32>().expect_err("only a piece");
    assert_eq!(first.as_slice::<u32>(), Ok(&[1][..]));
    assert!(Buffer::zeroed(8).into_vec::<u8>().is_err());
}

#[test]
fn casts_check_alignment_and_length() {
    let buffer = Buffer::copied_from(&[1, 0, 2, 0, 3, 0]);
    assert_eq!(buffer.as_slice::<u16>(), Ok(&[1_u16.to_le(), 2_u16.to_le(), 3_u16.to_le()][..]));
    assert_eq!(buffer.as_slice::<u32>(), Err(CastError::Uneven { byte_len: 6, element_byte_len: 4 }));
    let (_first, mut rest) = buffer.split_at(1).expect("in range");
    assert_eq!(rest.as_slice::<u16>(), Err(CastError::Misaligned { align: 2 }));
    assert_eq!(rest.as_mut_slice::<u16>(), Err(CastError::Misaligned { align: 2 }));
    assert_eq!(Buffer::default().as_slice::<u64>(), Ok(&[][..]));
}

#[test]
fn nothing_is_aligned_for_every_type() {
    let mut empty = Buffer::from_vec(Vec::<u8>::new());
    assert_eq!(empty.as_slice::<f32>(), Ok(&[][..]));
    assert!(empty.as_mut_slice::<f32>().is_ok_and(|slice| slice.is_empty()));
    let (all, mut nothing) = Buffer::copied_from(&[1, 2, 3]).split_at(3).expect("in range");
    assert_eq!(nothing.as_slice::<u64>(), Ok(&[][..]));
    assert!(nothing.as_mut_slice::<u64>().is_ok_and(|slice| slice.is_empty()));
    assert_eq!(all.as_slice::<u64>(), Err(CastError::Uneven { byte_len: 3, element_byte_len: 8 }));
}

#[test]
fn a_split_out_of_range_gives_the_buffer_back() {
    let error = Buffer::zeroed(5).split_at(6).expect_err("past the end");
    assert!(error.to_string().contains('6'));
    assert_eq!(error.into_buffer().byte_len(), 5);
}

#[test]
fn only_adjacent_pieces_of_one_whole_join() {
    let (first, rest) = Buffer::zeroed(9).split_at(3).expect("in range");
    let (second, third) = rest.split_at(3).expect("in range");
    let (third, second) = third.join(second).expect_err("wrong order");
    let (first, third) = first.join(third).expect_err("a gap between them");
    let (first, _other) = first.join(Buffer::zeroed(3)).expect_err("another whole");
    let whole = first.join(second).expect("adjacent").join(third).expect("adjacent");
    assert_eq!(whole.byte_len(), 9);
}

#[test]
fn random_splits_join_to_the_same_vec() {
    let mut random = fastrand::Rng::with_seed(42);
    for _ in 0..200 {
        let elements: Vec<u16> = (0..random.usize(0..300)).map(|_| random.u16(..)).collect();
        let expected: Vec<u16> = elements.iter().map(|element| !element).collect();
        let mut pieces = random_pieces(Buffer::from_vec(elements), &mut random);
        for piece in &mut pieces {
            piece.as_bytes_mut().iter_mut().for_each(|byte| *byte = !*byte);
        }
        let whole = pieces.into_iter().reduce(|left, right| left.join(right).expect("adjacent"));
        assert_eq!(whole.expect("one piece at least").into_vec::<u16>().expect("whole"), expected);
    }
}

#[test]
fn pieces_are_written_by_threads_at_once() {
    let pieces = pieces_of(Buffer::zeroed(1000), &[333, 333, 334]);
    let pieces: Vec<Buffer> = std::thread::scope(|scope| {
        let fill = |(index, mut piece): (usize, Buffer)| {
            piece.as_bytes_mut().fill(index as u8);
            piece
        };
        let threads: Vec<_> =
            pieces.into_iter().enumerate().map(|numbered| scope.spawn(move || fill(numbered))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let whole = pieces.into_iter().reduce(|left, right| left.join(right).expect("adjacent")).expect("three pieces");
    assert_eq!([whole.as_bytes()[332], whole.as_bytes()[333], whole.as_bytes()[999]], [0, 1, 2]);
}

#[test]
fn a_foreign_keeper_goes_with_the_last_piece() {
    struct Counted(Arc<AtomicUsize>, #[expect(dead_code, reason = "holds the memory")] Allocation);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let memory = Allocation::zeroed(16, 64).expect("16 bytes");
    let start = memory.start();
    // SAFETY: the 16 bytes belong to the keeper, which nobody else can reach.
    let buffer = unsafe { Buffer::foreign(start, 16, Counted(Arc::clone(&drops), memory)) };
    let (first, second) = buffer.split_at(8).expect("in range");
    drop(first);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(second);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

fn random_pieces(whole: Buffer, random: &mut fastrand::Rng) -> Vec<Buffer> {
    let mut left = whole.byte_len();
    let mut byte_lens = vec![0];
    while left > 0 {
        let byte_len = random.usize(0..=left);
        byte_lens.push(byte_len);
        left -= byte_len;
    }
    pieces_of(whole, &byte_lens)
}

/// Pieces of these lengths, which add up to the whole.
fn pieces_of(whole: Buffer, byte_lens: &[usize]) -> Vec<Buffer> {
    let mut rest = whole;
    let split = |&byte_len: &usize| {
        let (piece, after) = std::mem::take(&mut rest).split_at(byte_len).expect("adds up");
        rest = after;
        piece
    };
    byte_lens.iter().map(split).collect()
}
