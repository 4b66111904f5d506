//! Smoke.
use phalanx_comm::Threads;
use phalanx_core::{Group, ReduceOp};

#[test]
fn all_reduce() {
    for size in [1, 2, 3, 5] {
        for windows in [true, false] {
            let ends = Threads::new(size)
                .windows(windows)
                .run(|group: Group| {
                    for len in [0, 1, 1000, 100_000] {
                        let mut data: Vec<f32> = (0..len).map(|at| (at % 7) as f32 + group.rank() as f32).collect();
                        group.all_reduce(&mut data, ReduceOp::Sum).unwrap();
                        let base = (size * (size - 1) / 2) as f32;
                        assert!(
                            data.iter()
                                .enumerate()
                                .all(|(at, &v)| v == base + ((at % 7) * size) as f32)
                        );
                        group.barrier().unwrap();
                    }
                    let work = group.all_reduce_async(vec![1i32; 10], ReduceOp::Sum).unwrap();
                    let work2 = group.all_reduce_async(vec![2i32; 10], ReduceOp::Sum).unwrap();
                    group.barrier().unwrap();
                    assert_eq!(work.wait().unwrap(), vec![size as i32; 10]);
                    assert_eq!(work2.wait().unwrap(), vec![2 * size as i32; 10]);
                    if size > 1 {
                        let next = (group.rank() + 1) % size;
                        let prev = (group.rank() + size - 1) % size;
                        let s = group.send_async(vec![group.rank() as u64; 100_000], next, 7).unwrap();
                        let mut got = vec![0u64; 100_000];
                        assert_eq!(group.recv(&mut got, prev, 7).unwrap(), prev);
                        assert!(got.iter().all(|&v| v == prev as u64));
                        s.wait().unwrap();
                    }
                })
                .unwrap();
            assert_eq!(ends.len(), size);
        }
    }
}
