//! Many clients at once: no change is lost, none is made twice, and nobody sees half of one.

use std::collections::BTreeSet;

use crate::setting::Setting;

pub(crate) fn adding(setting: &Setting) {
    let sums = setting.run(CLIENTS, |_, store| (0..ROUNDS).map(|_| store.add("n", 1).unwrap()).collect::<Vec<i64>>());
    let seen: BTreeSet<i64> = sums.iter().flatten().copied().collect();
    assert_eq!(seen, (1..=(CLIENTS * ROUNDS) as i64).collect(), "each sum once");
    assert!(sums.iter().all(|sums| sums.is_sorted()));
}

pub(crate) fn comparing(setting: &Setting) {
    let last = setting.run(CLIENTS, |number, store| {
        let mut now = store.compare_set("n", "", "0").unwrap();
        for round in 0..ROUNDS {
            loop {
                let count = count_of(&now) + 1;
                // Nobody else writes the same, so whoever finds its own value there has written it.
                let mine = format!("{count}/{number}/{round}");
                now = store.compare_set("n", &now, &mine).unwrap();
                if now == mine.as_bytes() {
                    break;
                }
            }
        }
        store.barrier("end", CLIENTS).unwrap();
        count_of(&store.get("n").unwrap())
    });
    assert_eq!(last, [CLIENTS * ROUNDS; CLIENTS]);
}

fn count_of(value: &[u8]) -> usize {
    let text = str::from_utf8(value).unwrap();
    text.split('/').next().unwrap().parse().unwrap()
}

pub(crate) fn appending(setting: &Setting) {
    setting.run(CLIENTS, |number, store| {
        let piece = [b'a' + number as u8; 7];
        (0..ROUNDS).for_each(|_| store.append("all", piece).unwrap());
        store.barrier("end", CLIENTS).unwrap();
        let all = store.get("all").unwrap();
        assert_eq!(all.len(), 7 * CLIENTS * ROUNDS);
        assert!(all.chunks(7).all(|piece| piece.iter().all(|byte| *byte == piece[0])), "pieces stay whole");
        assert_eq!(all.iter().filter(|byte| **byte == piece[0]).count(), 7 * ROUNDS);
    });
}

pub(crate) fn popping(setting: &Setting) {
    let taken = setting.run(CLIENTS * 2, |number, store| {
        if number < CLIENTS {
            for round in 0..ROUNDS {
                store.push("q", (number * ROUNDS + round).to_string()).unwrap();
            }
            return Vec::new();
        }
        let mut pops: Vec<usize> = Vec::new();
        while pops.len() < ROUNDS {
            let value = if number % 2 == 0 { Some(store.pop("q").unwrap()) } else { store.try_pop("q").unwrap() };
            pops.extend(value.map(|value| String::from_utf8(value).unwrap().parse::<usize>().unwrap()));
        }
        // Of one pusher's values each popper sees the earlier ones first.
        for pusher in 0..CLIENTS {
            assert!(pops.iter().filter(|value| **value / ROUNDS == pusher).is_sorted());
        }
        pops
    });
    let mut all: Vec<usize> = taken.into_iter().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..CLIENTS * ROUNDS).collect::<Vec<_>>(), "each value once");
}

pub(crate) fn meeting(setting: &Setting) {
    setting.run(CLIENTS, |number, store| {
        for round in 0..10 {
            store.set(&format!("{round}/{number}"), "").unwrap();
            store.barrier(&format!("barrier {round}"), CLIENTS).unwrap();
            let all: Vec<String> = (0..CLIENTS).map(|number| format!("{round}/{number}")).collect();
            assert!(store.check(&all.iter().map(|key| &**key).collect::<Vec<_>>()).unwrap(), "all have come");
        }
    });
}

pub(crate) fn pairs(setting: &Setting) {
    setting.run(CLIENTS, |number, store| {
        if number == 0 {
            for round in 0..ROUNDS as u32 {
                let value = round.to_le_bytes();
                store.multi_set(&[("a", &value), ("b", &value), ("c", &value)]).unwrap();
            }
            return store.set("end", "").unwrap();
        }
        while !store.check(&["end"]).unwrap() {
            let values = store.multi_get(&["c", "a", "b"]).unwrap();
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        }
    });
}

const CLIENTS: usize = 4;
const ROUNDS: usize = 50;
