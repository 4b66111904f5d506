//! Anything that a model may come to, in any order that ranks agree on: what is lent is always what the shards say, and nothing is left.

use phalanx_core::{DType, Result};
use phalanx_fsdp::{Class, Gathered, Gradient, Groups, ParamSpec, Policy, Reshard, Sharded, UnitSpec};

use crate::company::Company;

const UNITS: usize = 4;
const SHAPE: [usize; 2] = [5, 3];
const LEN: usize = 15;

/// A model whose unit `u` is all `u` at first, and what it must be and what its gradients must be.
struct Walk {
    model: Sharded,
    values: [f32; UNITS],
    /// Summed over what was reduced; and what waits for that.
    gradients: [f32; UNITS],
    waiting: [f32; UNITS],
    syncs: bool,
    all_reduces: bool,
    is_last_backward: bool,
    has_replicas: bool,
}

impl Walk {
    fn new(groups: Groups, random: &mut fastrand::Rng) -> Walk {
        let reshards = [Reshard::Yes, Reshard::No, Reshard::Smaller];
        let unit = |unit: usize| {
            let reshard = reshards[random.usize(..3)];
            let params = vec![ParamSpec::new("weight", &SHAPE, DType::F32)];
            UnitSpec::new(format!("{unit}"), params).reshard_after_forward(reshard)
        };
        let units = (0..UNITS).map(unit).collect();
        let policy = Policy::default().forward_prefetch(random.usize(..3)).backward_prefetch(random.usize(..3));
        let has_replicas = groups.replicas().is_some();
        let model = Sharded::new(groups, units, policy).expect("a model");
        let (values, zeros) = ([0.0; UNITS], [0.0; UNITS]);
        let mut walk = Walk {
            model,
            values,
            gradients: zeros,
            waiting: zeros,
            syncs: true,
            all_reduces: true,
            is_last_backward: true,
            has_replicas,
        };
        (0..UNITS).for_each(|unit| walk.load(unit, unit as f32).expect("its values"));
        walk
    }

    fn load(&mut self, unit: usize, value: f32) -> Result<()> {
        self.values[unit] = value;
        let param = self.model.param(&format!("{unit}"), "weight").expect("a name");
        self.model.load_full(param, &[value; LEN])
    }

    fn step(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let path: Vec<usize> = (0..random.usize(..6)).map(|_| random.usize(..UNITS)).collect();
        for unit in &path {
            check(self.model.before_forward(*unit)?, self.values[*unit]);
            if random.bool() {
                self.model.copied(*unit)?;
            }
            self.model.after_forward(*unit)?;
            match random.usize(..8) {
                0 => check(self.model.unshard(random.usize(..UNITS)).expect("a unit"), f32::NAN),
                1 => self.model.reshard(random.usize(..UNITS))?,
                2 => self.load(random.usize(..UNITS), random.u8(..) as f32)?,
                _ => {}
            }
        }
        for unit in path.iter().rev().take(random.usize(..=path.len())) {
            check(self.model.before_backward(*unit)?, self.values[*unit]);
            if random.bool() {
                self.model.copied(*unit)?;
            }
            self.model.gradients(*unit, &[Gradient::new(0, &[1.0_f32; LEN])])?;
            self.waiting[*unit] += 1.0;
            if self.reduces() {
                self.gradients[*unit] += std::mem::take(&mut self.waiting[*unit]);
            }
        }
        if self.is_last_backward && self.reduces() {
            (0..UNITS).for_each(|unit| self.gradients[unit] += std::mem::take(&mut self.waiting[unit]));
        }
        self.model.finish_backward()
    }

    /// Whether gradients go all the way.
    fn reduces(&self) -> bool {
        self.syncs && (self.all_reduces || !self.has_replicas)
    }

    /// Changes what may change between micro-batches.
    fn change(&mut self, random: &mut fastrand::Rng, is_last: bool) {
        (self.syncs, self.all_reduces) = (is_last || random.bool(), is_last || random.bool());
        self.model.set_sync(self.syncs);
        self.model.set_all_reduce(self.all_reduces);
        self.model.set_reshard_after_backward(is_last || random.bool());
        self.is_last_backward = is_last || random.bool();
        self.model.set_last_backward(self.is_last_backward);
        self.model.set_training(is_last || random.bool());
    }

    /// What must hold after a step that was the last.
    fn check_end(&self, seed: u64) {
        for class in [Class::Gathered, Class::Narrow, Class::Reducing] {
            assert_eq!(self.model.memory().of(class).current, 0, "seed {seed}: {class:?}");
        }
        for param in self.model.trained() {
            let gradient = self.model.gradient::<f32>(param).expect("a type");
            let wanted = self.gradients[param.unit];
            assert!(gradient.unwrap_or_default().iter().all(|g| *g == wanted), "seed {seed}: {gradient:?}, {wanted}");
            assert_eq!(gradient.is_some(), wanted > 0.0, "seed {seed}");
        }
    }
}

/// That a unit is what it must be, unless that is not known here.
fn check(full: Gathered<'_>, value: f32) {
    let mut out = [f32::NAN; LEN];
    full.copy_out(0, &mut out).expect("its length");
    assert!(out.iter().all(|x| *x == if value.is_nan() { out[0] } else { value }), "{out:?} for {value}");
}

#[test]
fn any_walk_lends_what_the_shards_say_and_leaves_nothing() {
    for seed in 0..80 {
        let company = [Company::of(1), Company::of(2), Company::of(3), Company::of(2).replicas(2)][seed as usize % 4];
        company.smaller(1).run(|groups, _| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut walk = Walk::new(groups, &mut random);
            for step in 0..6 {
                walk.change(&mut random, step % 3 == 2);
                walk.step(&mut random).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                if step % 3 == 2 {
                    walk.check_end(seed);
                }
            }
        });
    }
}
