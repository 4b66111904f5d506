//! Ranks that come to share memory, and those that do not and go on without.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::Layout;
use phalanx_core::link::{Lease, LinkError};
use phalanx_core::store::{Limits, Store};

use super::share::Ways;
use super::{Request, share};
use crate::net::Standing;
use crate::store::LocalStore;

/// What each rank has, on hosts 0, 0, 1, 1 and 2, where rank `i` says it is in epoch `epochs[i]`.
fn meet(epochs: [u32; 5]) -> Vec<(Ways, Vec<Arc<Standing>>)> {
    let store = Store::new(LocalStore::new(Limits::default()));
    let rank = |rank: usize| {
        let layout = Layout::new(rank, vec![0, 0, 1, 1, 2]).expect("a rank");
        let patience = if epochs[0] == epochs[1] || rank > 1 { LONG } else { SHORT };
        let (store, places, epoch) = (&store, &vec!["here".to_owned(); 5], epochs[rank]);
        let members = &[0, 1, 2, 3, 4];
        let request = Request { store, layout: &layout, members, places, epoch, windows: true, patience };
        let standings: Vec<Arc<Standing>> = (0..5).map(|_| Arc::default()).collect();
        let agreement = share(&request, Instant::now() + LONG).expect("all come");
        (agreement.ways(&standings), standings)
    };
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = (0..5).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// To whom a rank has links, and whether it has windows.
fn seen((ways, _): &(Ways, Vec<Arc<Standing>>)) -> (Vec<usize>, bool) {
    assert!(ways.links.iter().zip(&ways.post).all(|(link, post)| link.is_some() == post.is_some()));
    ((0..5).filter(|&rank| ways.links[rank].is_some()).collect(), ways.windows.windows.is_some())
}

#[test]
fn neighbours_have_links_and_windows() {
    let ranks = meet([0; 5]);
    let expected = [(vec![1], true), (vec![0], true), (vec![3], true), (vec![2], true), (vec![], false)];
    assert_eq!(ranks.iter().map(seen).collect::<Vec<_>>(), expected);
    assert!(ranks.iter().all(|(ways, _)| ways.windows.everywhere));
}

#[test]
fn where_one_host_cannot_all_others_know_and_go_on() {
    let ranks = meet([0, 1, 0, 0, 0]);
    let expected = [(vec![], false), (vec![], false), (vec![3], false), (vec![2], false), (vec![], false)];
    assert_eq!(ranks.iter().map(seen).collect::<Vec<_>>(), expected);
    assert!(ranks.iter().all(|(ways, _)| !ways.windows.everywhere));
}

/// Its connections ended, which nobody looks at before there is a group.
#[test]
fn who_is_lost_before_the_group_is_there_is_soon_named_by_its_number_in_the_world() {
    let store = Store::new(LocalStore::new(Limits::default()));
    let rank = &|rank: usize| {
        let layout = Layout::new(rank, vec![0, 0, 0]).expect("a rank");
        let (members, places) = (&[4, 6, 9], &vec!["here".to_owned(); 3]);
        let (store, layout) = (&store, &layout);
        let request = Request { store, layout, members, places, epoch: 0, windows: true, patience: SHORT };
        share(&request, Instant::now() + LONG).err().expect("rank 9 does not come")
    };
    let began = Instant::now();
    thread::scope(|scope| {
        let ranks = [0, 1].map(|number| scope.spawn(move || rank(number)));
        for error in ranks.map(|rank| rank.join().expect("no panic")) {
            assert_eq!(error.culprits(), [9], "{error}");
        }
    });
    assert!(began.elapsed() < LONG / 2);
}

#[test]
fn the_end_of_a_ring_or_a_window_means_what_is_said_of_the_neighbour() {
    let mut ranks = meet([0; 5]);
    let (mut ways, standings) = ranks.remove(0);
    let link = ways.links[1].as_mut().expect("a neighbour");
    let mut windows = ways.windows.windows.take().expect("a neighbour");
    assert_eq!(windows.try_offer(&[7; HEAD], &[], Lease::View), Ok(true));
    drop(ranks);
    assert_eq!(link.try_recv(&mut [0]), Ok(0));
    assert_eq!(windows.view(1, 0, 0..0), Ok(None));
    standings[1].leave();
    let left = LinkError::Left { rank: Some(1) };
    assert_eq!(link.try_recv(&mut [0]), Err(left.clone()));
    assert_eq!(windows.view(1, 0, 0..0), Err(left));
}

const HEAD: usize = phalanx_mem::board::HEAD;
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
