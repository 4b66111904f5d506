//! A mesh: the world's ranks in named dimensions, and a group along each.

use phalanx_core::{Error, Group, Result};

use super::divide::Ask;
use super::parts::{Parts, coordinates};
use crate::rendezvous::World;
use crate::wiring::Wiring;

/// The ranks of a world in named dimensions, the last of which changes fastest, as this rank sees them.
///
/// ```no_run
/// # use phalanx_comm::{Wiring, rendezvous::World};
/// # fn train(world: &World) -> phalanx_core::Result<()> {
/// // Eight ranks: two replicas of a model whose layers four ranks share.
/// let mesh = world.mesh(&[("replica", 2), ("shard", 4)], &Wiring::default())?;
/// let shard = mesh.group("shard").expect("it was just named");
/// assert_eq!((shard.size(), mesh.coordinate("shard")), (4, Some(shard.rank())));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Mesh {
    names: Vec<String>,
    extents: Vec<usize>,
    place: Vec<usize>,
    groups: Vec<Group>,
}

impl World {
    /// The ranks in named dimensions, whose extents multiply to the size of the world, with a group along each. Every rank
    /// calls this.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where a name is there twice or the extents do not fit, else as
    /// [`subgroup`](World::subgroup).
    pub fn mesh(&self, dimensions: &[(&str, usize)], wiring: &Wiring) -> Result<Mesh> {
        let names: Vec<String> = dimensions.iter().map(|(name, _)| (*name).to_owned()).collect();
        let extents: Vec<usize> = dimensions.iter().map(|(_, extent)| *extent).collect();
        let fits = check_names(dimensions).and_then(|()| self.check(("mesh", "dimensions"), &extents));
        let along = |dimension: usize| self.along((&names, &extents), &[dimension], fits.clone(), wiring);
        // All dimensions even where one fails: else this rank would be behind the others in the rest from then on.
        let groups: Vec<Result<Group>> = (0..extents.len()).map(along).collect();
        let groups = fits.and_then(|()| groups.into_iter().collect())?;
        let place = coordinates(&extents, self.rank());
        Ok(Mesh { names, extents, place, groups })
    }

    /// The group of the ranks that differ from this one in these dimensions of a mesh of this world only. Every rank calls
    /// this.
    ///
    /// # Errors
    ///
    /// As [`mesh`](World::mesh), also where the world has another size since it [changed](World::reconfigure), and for a name
    /// that the mesh does not have.
    pub fn mesh_group(&self, mesh: &Mesh, dimensions: &[&str], wiring: &Wiring) -> Result<Group> {
        let fits = self.check(("mesh_group", "mesh"), &mesh.extents);
        let find = |name: &&str| {
            let expected = || format!("must be of {}", mesh.names.join(", "));
            mesh.dimension(name)
                .ok_or_else(|| Error::usage("mesh_group", "dimensions", format!("{name:?}"), expected()))
        };
        match dimensions.iter().map(find).collect::<Result<Vec<_>>>() {
            Ok(chosen) => self.along((&mesh.names, &mesh.extents), &chosen, fits, wiring),
            Err(unknown) => {
                let ask = Ask::new("mesh", format!("what is along {}", dimensions.join("+")));
                self.part_for_all(ask, Err(unknown), wiring)
            }
        }
    }

    /// The group along these dimensions. Where the extents do not fit, the others are told so, who may have given other ones.
    fn along(
        &self,
        (names, extents): (&[String], &[usize]),
        chosen: &[usize],
        fits: Result<()>,
        wiring: &Wiring,
    ) -> Result<Group> {
        let along = chosen.iter().map(|&dimension| names[dimension].as_str()).collect::<Vec<_>>().join("+");
        let shape: Vec<String> = names.iter().zip(extents).map(|(name, extent)| format!("{name} {extent}")).collect();
        let ask = Ask::new("mesh", format!("{} along {along}", shape.join(" x ")));
        let name = wiring.chosen_name().map_or_else(|| along.clone(), |name| format!("{name}/{along}"));
        self.part_for_all(ask, fits.map(|()| Parts::along(extents, chosen)), &wiring.clone().named(name))
    }

    /// That the extents in this argument of a call multiply to the size of this world.
    fn check(&self, (call, argument): (&'static str, &'static str), extents: &[usize]) -> Result<()> {
        if extents.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent)) == Some(self.size()) {
            return Ok(());
        }
        let value = extents.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        let expected = format!("must multiply to the size {} of the world", self.size());
        Err(Error::usage(call, argument, value, expected))
    }
}

/// That a mesh has dimensions, each with a name of its own.
fn check_names(dimensions: &[(&str, usize)]) -> Result<()> {
    let mut names: Vec<&str> = dimensions.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let value = format!("{:?} twice", twice[0]);
        return Err(Error::usage("mesh", "dimensions", value, "must have different names"));
    }
    if dimensions.is_empty() {
        return Err(Error::usage("mesh", "dimensions", "empty", "must have one at least"));
    }
    Ok(())
}

impl Mesh {
    /// The dimensions and how long each is, in order.
    pub fn dimensions(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().map(String::as_str).zip(self.extents.iter().copied())
    }

    /// The group along a dimension: its ranks differ in this coordinate only, which is their rank in it.
    pub fn group(&self, dimension: &str) -> Option<&Group> {
        self.dimension(dimension).map(|at| &self.groups[at])
    }

    /// Where this rank stands in a dimension.
    pub fn coordinate(&self, dimension: &str) -> Option<usize> {
        self.dimension(dimension).map(|at| self.place[at])
    }

    /// Where this rank stands in all dimensions.
    pub fn coordinates(&self) -> &[usize] {
        &self.place
    }

    /// The world's rank at these coordinates, if there is one.
    pub fn rank_at(&self, place: &[usize]) -> Option<usize> {
        let is_inside =
            place.len() == self.extents.len() && place.iter().zip(&self.extents).all(|(at, extent)| at < extent);
        is_inside.then(|| place.iter().zip(&self.extents).fold(0, |rank, (at, extent)| rank * extent + at))
    }

    fn dimension(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use phalanx_core::ErrorKind;
    use phalanx_core::store::{Limits, Store};

    use super::*;
    use crate::rendezvous::WorldOptions;
    use crate::store::LocalStore;

    #[test]
    fn a_mesh_from_before_its_world_became_smaller_is_refused_by_all_ranks_alike() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let act = |rank: usize| {
            let world = World::join(store.clone(), &WorldOptions::new(rank, 4)).expect("all come");
            let mesh = world.mesh(&[("replica", 2), ("shard", 2)], &Wiring::default()).expect("all ask");
            world.barrier("formed", PATIENCE).expect("all");
            if rank == 3 {
                return;
            }
            let world = world.reconfigure(&[3], PATIENCE).expect("three go on");
            for dimensions in [&["shard"][..], &["replica", "shard"]] {
                let error = world.mesh_group(&mesh, dimensions, &Wiring::default()).expect_err("it is of four");
                let told = "mesh_group: mesh is 2 x 2, must multiply to the size 3 of the world";
                assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Usage, told));
            }
            let mesh = world.mesh(&[("shard", 3)], &Wiring::default()).expect("all ask");
            let group = world.mesh_group(&mesh, &["shard"], &Wiring::default()).expect("nobody is behind");
            group.barrier().expect("all are in it");
        };
        thread::scope(|scope| {
            for rank in 0..4 {
                scope.spawn(move || act(rank));
            }
        });
    }

    const PATIENCE: Duration = Duration::from_secs(60);
}
