//! One unit on a device: where its parts live, the tables between them, and whatever of it is in the air.

use std::sync::Arc;

use phalanx_core::{DType, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process, Span};
use phalanx_nccl::group::DeviceWork;
use phalanx_nccl::kernels::Stretch;

use super::after::Done;
use super::deck::Mark;
use super::groups::Means;
use super::hook::HookTables;
use super::pool::Block;
use super::runner::Parts;
use super::store::Store;
use super::table::{self, Places, Table, TableSet};
use crate::layout::{Row, UnitLayout};
use crate::options::Offload;
use crate::reduce::check_still;
use crate::spec::{Role, UnitSpec};

/// A unit and everything this rank has of it.
pub(super) struct Unit<N: Nccl, C: Cuda, P: Process> {
    pub(super) spec: UnitSpec,
    pub(super) layout: UnitLayout,
    pub(super) store: Store<C>,
    /// Where full parameters lie once they are copied out.
    pub(super) places: Places,
    pub(super) parts: Arc<Parts>,
    pub(super) tables: Tables<C>,
    /// Whether shards were written on the program's stream since they were last gathered.
    pub(super) is_written: bool,
    /// Whether they were on the stream of taken gradients.
    pub(super) is_stepped: bool,
    /// When they were last copied in.
    pub(super) read: Mark<C>,
    /// What is done with gradients as soon as they are taken.
    pub(super) after: Vec<(usize, Done<C>)>,
    pub(super) full: Full<N, C, P>,
    /// This rank's row in the smaller group, and when it was kept.
    pub(super) narrow: Option<Block<C>>,
    pub(super) narrowed: Mark<C>,
    pub(super) reducing: Reducing<N, C, P>,
    /// Whether those that are being reduced are dropped once they are.
    pub(super) is_given_up: bool,
    /// Whether what is done with gradients that were taken waits for more of them.
    pub(super) is_behind: bool,
    /// The reduced row that replicas have not joined.
    pub(super) partial: Option<Block<C>>,
    /// Rows of gradients that were not reduced.
    pub(super) accumulated: Option<Block<C>>,
    /// Memory that was lent for gradients.
    pub(super) lent: Option<Block<C>>,
    /// Whether gradients are reduced as they come.
    pub(super) syncs: bool,
}

/// The tables of a unit.
pub(super) struct Tables<C: Cuda> {
    pub(super) copy_in: TableSet<C>,
    pub(super) copy_out: TableSet<C>,
    /// With a smaller group: to this rank's row in it, and from all rows.
    pub(super) narrow: Option<[TableSet<C>; 2]>,
    pub(super) take: TableSet<C>,
    /// All rows, and one row, as they are; none of a unit without gradients.
    pub(super) whole: Option<[Table<C>; 2]>,
    /// Where a hook has gradients travel in another type.
    pub(super) hook: Option<HookTables<C>>,
    /// From gradients to rows, by the type in which gradients came.
    pub(super) rows: Vec<ChunkCat<C>>,
}

/// From the gradients of one type to rows.
pub(super) struct ChunkCat<C: Cuda> {
    pub(super) dtype: DType,
    /// Where gradients lie in memory that is lent for them.
    pub(super) places: Places,
    /// The parameters whose gradients there may be and whose memory they go to, owners first: in the order of stretches.
    pub(super) gradients: Vec<(usize, usize)>,
    pub(super) table: Table<C>,
}

impl<C: Cuda> ChunkCat<C> {
    /// Where a gradient lies in what was lent.
    pub(super) fn lent(&self, index: usize, lent: Option<Span>) -> Option<Span> {
        let (start, byte_len) = self.places.of(index)?;
        lent?.part(start, byte_len)
    }
}

/// The full parameters.
#[derive(Default)]
pub(super) enum Full<N: Nccl, C: Cuda, P: Process> {
    #[default]
    Absent,
    Coming {
        staging: Block<C>,
        work: DeviceWork<N, C, P>,
        is_narrow: bool,
    },
    Here(Block<C>),
}

/// Gradients on their way.
#[derive(Default)]
pub(super) enum Reducing<N: Nccl, C: Cuda, P: Process> {
    #[default]
    Nothing,
    /// Among shards, or then among replicas.
    Under(Block<C>, DeviceWork<N, C, P>),
    /// This rank's row is reduced.
    Done(Block<C>),
}

impl<N: Nccl, C: Cuda, P: Process> Unit<N, C, P> {
    pub(super) fn new(
        spec: UnitSpec,
        layout: UnitLayout,
        means: &mut Means<N, C, P>,
        offload: Offload,
    ) -> Result<Unit<N, C, P>> {
        let rank = means.groups.rank();
        let part = |row: &Row, index: usize| {
            let held = row.span(index)?.division.elements(rank).len();
            Some(held * spec.params[index].dtype.byte_len())
        };
        let all = 0..spec.params.len();
        let shards = Places::new(all.clone().map(|index| part(&layout.gather, index)));
        let gradients = Places::new(all.clone().map(|index| part(&layout.reduce, index)));
        let full = |index| layout.gather.span(index).map(|span| span.division.full_len() * span.dtype.byte_len());
        let places = Places::new(all.map(full));
        let Means { deck, pool, groups, .. } = means;
        let own = |index: usize| spec.params[index].dtype;
        let narrow = match (&layout.narrow, &groups.smaller) {
            (Some(row), Some(group)) => {
                let rank = group.group().rank();
                let kept = TableSet::new(deck, &table::narrow(row, rank, &places))?;
                Some([kept, TableSet::new(deck, &table::copy_out(row, &places))?])
            }
            _ => None,
        };
        let whole = |len: usize| [Stretch { from: 0, to: 0, len, zeros: 0 }];
        let tables = Tables {
            copy_in: TableSet::new(deck, &table::copy_in(&layout.gather, rank, &shards, own))?,
            copy_out: TableSet::new(deck, &table::copy_out(&layout.gather, &places))?,
            narrow,
            take: TableSet::new(deck, &table::take(&layout.reduce, rank, &gradients, own))?,
            whole: match layout.reduce.dtype {
                Some(dtype) => {
                    let lens = [layout.reduce.total(), layout.reduce.byte_len].map(|len| len / dtype.byte_len());
                    let [all, one] = lens.map(|len| Table::new(deck, (dtype, dtype), &whole(len)));
                    Some([all?, one?])
                }
                None => None,
            },
            hook: None,
            rows: Vec::new(),
        };
        let store = Store::new((deck, pool), [shards, gradients], offload)?;
        Ok(Unit {
            store,
            parts: Arc::new(Parts::new(&spec, &layout, &places)),
            places,
            tables,
            is_written: true,
            is_stepped: false,
            read: deck.mark()?,
            after: Vec::new(),
            full: Full::Absent,
            narrow: None,
            narrowed: deck.mark()?,
            reducing: Reducing::Nothing,
            is_given_up: false,
            is_behind: false,
            partial: None,
            accumulated: None,
            lent: None,
            syncs: true,
            spec,
            layout,
        })
    }

    /// That how its gradients are joined and divided may change.
    pub(super) fn check_still(&self, call: &'static str) -> Result<()> {
        let waits = [!matches!(self.reducing, Reducing::Nothing), self.partial.is_some()];
        check_still(call, &self.spec, waits)
    }

    pub(super) fn is_trained(&self, owner: usize) -> bool {
        self.spec.params[owner].role == Role::Trained
    }

    /// The table from gradients of this type to rows, which is made when the first of them come.
    pub(super) fn chunk_cat(&mut self, dtype: DType, means: &mut Means<N, C, P>) -> Result<&ChunkCat<C>> {
        if let Some(at) = self.tables.rows.iter().position(|rows| rows.dtype == dtype) {
            return Ok(&self.tables.rows[at]);
        }
        let row = &self.layout.reduce;
        let owner = |index: usize| self.layout.owners[index].filter(|owner| row.span(*owner).is_some());
        let full = |index| owner(index).map(|owner| self.layout.divisions[owner].full_len() * dtype.byte_len());
        let all = 0..self.spec.params.len();
        let places = Places::new(all.clone().map(full));
        let pairs = all.filter_map(|index| Some((index, owner(index)?)));
        let (mut gradients, tied): (Vec<_>, Vec<_>) = pairs.partition(|(index, owner)| index == owner);
        gradients.extend(tied);
        let stretches = table::chunk_cat(row, &gradients, &places, dtype);
        let table = Table::new(&mut means.deck, (dtype, row.dtype.unwrap_or(DType::F32)), &stretches)?;
        self.tables.rows.push(ChunkCat { dtype, places, gradients, table });
        Ok(&self.tables.rows[self.tables.rows.len() - 1])
    }
}
