//! Writes the seeds of target `handshake`: `cargo run --example handshake_seeds`, from any directory.

use std::error::Error;
use std::fs;
use std::path::Path;

use phalanx_comm::secure::{
    Claim, Claimant, ClientHandshake, Denial, JobKey, JobName, Plane, ServerHandshake, ServerStep, Session, Welcome,
};

fn main() -> Result<(), Box<dyn Error>> {
    let key = JobKey::from_hex(&"5a".repeat(32))?;
    let job = JobName::new("train")?;
    let claims = [
        Claim::new(job.clone(), 0, Session::from([1; 16])),
        Claim::new(job, 7, Session::from([9; 16])).member(1, 4)?,
        Claim::new(JobName::new(&"j".repeat(64))?, u32::MAX, Session::from([255; 16])).world(9),
    ];
    for (number, claim) in claims.iter().enumerate() {
        let hello = |key| ClientHandshake::new(key, claim, Plane::Store).start();
        write(&format!("keyed-hello-{number}"), 0, &[hello(Some(&key)), proof()].concat())?;
        write(&format!("plain-hello-{number}"), 8, &hello(None))?;
    }
    write("proof", 4, &proof())?;
    write("sealed-answer", 14, &[vec![7; 32], 304_u16.to_le_bytes().to_vec(), vec![7; 304]].concat())?;
    write("welcome", 11, &claimant(&claims[1])?.admit(&Welcome { instance: 1, epoch: 7 })?.0)?;
    for (number, denial) in denials().iter().enumerate() {
        write(&format!("denial-{number}"), 11, &claimant(&claims[1])?.deny(denial)?)?;
    }
    write("record", 15, &[20_u16.to_le_bytes().to_vec(), vec![7; 20]].concat())
}

/// A client that waits for a plain answer.
fn claimant(claim: &Claim) -> Result<Claimant, Box<dyn Error>> {
    match ServerHandshake::new(None, Plane::Store).receive(&ClientHandshake::new(None, claim, Plane::Store).start())? {
        (_, ServerStep::Claimed(claimant)) => Ok(*claimant),
        (_, step) => Err(format!("{step:?} to a plain hello").into()),
    }
}

/// As long as a proof, and as false as any that is not made for its challenge.
fn proof() -> Vec<u8> {
    [48_u16.to_le_bytes().to_vec(), vec![7; 48]].concat()
}

fn denials() -> [Denial; 7] {
    let text = || "some text".to_owned();
    [
        Denial::WrongJob { job: text() },
        Denial::WrongEpoch { claimed: 1, current: 2 },
        Denial::WrongWorld { claimed: 1, current: 2 },
        Denial::RankOutOfRange { rank: 2, world: 2 },
        Denial::RankTaken { rank: 1, by: text() },
        Denial::Full { why: text() },
        Denial::Other { code: 99, text: text() },
    ]
}

/// A seed: the stage, how it is cut, and what arrives.
fn write(name: &str, stage: u8, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let room = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/handshake");
    fs::create_dir_all(&room)?;
    Ok(fs::write(room.join(name), [&[stage, 0], bytes].concat())?)
}
