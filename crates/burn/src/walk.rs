//! Through a module's parameters: which there are, and other values in their places. A parameter that stands in a module twice is one.

use burn::module::{self, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::kind::{Autodiff, Basic};
use burn::tensor::{Bool, DType, Gradients, Int, Tensor, TensorData};
use burn_optim::GradientsParams;
use phalanx_core::{Error, Result, fnv};

use crate::values;

/// A parameter of a module.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// Its path within the module.
    pub(crate) name: String,
    pub(crate) id: ParamId,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// Whether it has gradients; a frozen one has none.
    pub(crate) is_trained: bool,
}

/// What a module consists of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    path: Vec<String>,
    /// Its parameters, in the order of the module.
    pub(crate) parameters: Vec<Parameter>,
    /// What each rank keeps whole: integers and booleans, running averages, and weights that are packed.
    pub(crate) others: Vec<Parameter>,
    /// One that is on a device without autodiff.
    pub(crate) plain: Option<String>,
    /// One that stands there twice, by both its paths, and is trained.
    pub(crate) twice: Option<(String, String)>,
}

impl Survey {
    /// Whether there are running averages: what is packed has no type that ranks know.
    pub(crate) fn has_averages(&self) -> bool {
        self.others.iter().any(|one| values::wire_type(one.dtype).is_some())
    }

    /// Notes what has no gradient, whatever is done with it.
    fn note<const D: usize, K: Basic>(&mut self, param: &Param<Tensor<D, K>>)
    where
        Tensor<D, K>: module::Parameter,
    {
        if place(&self.others, param.id).is_none() {
            let (name, shape, dtype) = (self.path.join("."), param.dims().to_vec(), param.dtype());
            self.others.push(Parameter { name, id: param.id, shape, dtype, is_trained: false });
        }
    }
}

/// Which there are.
pub(crate) fn survey<M: Module>(module: &M) -> Survey {
    let mut survey = Survey::default();
    module.visit(&mut survey);
    let states = states(module);
    let is_other =
        |one: &mut Parameter| !one.is_trained && (states.contains(&one.id) || values::wire_type(one.dtype).is_none());
    let others: Vec<_> = survey.parameters.extract_if(.., is_other).collect();
    survey.others.extend(others);
    survey
}

/// The ids of running averages. A module shows them as it shows frozen parameters, but changes them by itself; and they keep their ids, whatever
/// one is given.
fn states<M: Module>(module: &M) -> Vec<ParamId> {
    let mut rename = Rename::default();
    let renamed = module.clone().map(&mut rename);
    let mut ids = Ids::default();
    renamed.visit(&mut ids);
    ids.0.retain(|id| rename.former.contains(id));
    ids.0
}

#[derive(Default)]
struct Rename {
    former: Vec<ParamId>,
}

impl ModuleMapper for Rename {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_require_grad() {
            return param;
        }
        let (id, value, mapper) = param.consume();
        self.former.push(id);
        Param::from_mapped_value(ParamId::new(), value, mapper)
    }
}

#[derive(Default)]
struct Ids(Vec<ParamId>);

impl ModuleVisitor for Ids {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.id);
    }
}

impl ModuleVisitor for Survey {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = self.path.join(".");
        if !param.lazy_device().is_autodiff() {
            self.plain.get_or_insert_with(|| name.clone());
        }
        match place(&self.parameters, param.id) {
            None => {
                let (id, shape, dtype) = (param.id, param.dims().to_vec(), param.dtype());
                self.parameters.push(Parameter { name, id, shape, dtype, is_trained: param.is_require_grad() });
            }
            Some(first) if param.is_require_grad() => {
                self.twice.get_or_insert_with(|| (self.parameters[first].name.clone(), name));
            }
            Some(_) => {}
        }
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.note(param);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.note(param);
    }
}

/// The number of a parameter among these.
fn place(parameters: &[Parameter], id: ParamId) -> Option<usize> {
    parameters.iter().position(|parameter| parameter.id == id)
}

/// The same parameter with another value. Whether it is trained stays as it is, and is not told to the new value.
fn with_value<const D: usize, K: Basic>(param: Param<Tensor<D, K>>, value: Tensor<D, K>) -> Param<Tensor<D, K>>
where
    Tensor<D, K>: module::Parameter,
{
    let (id, _, mapper) = param.consume();
    Param::from_mapped_value(id, value, mapper)
}

/// The same with these elements, in their type and where the parameter is.
fn with_data<const D: usize, K: Basic>(param: Param<Tensor<D, K>>, data: TensorData) -> Param<Tensor<D, K>>
where
    Tensor<D, K>: module::Parameter,
{
    let (device, dtype) = (param.lazy_device(), data.dtype());
    with_value(param, Tensor::from_data(data, (&device, dtype)))
}

/// Shows the values of those of these parameters that are wanted, by their numbers.
pub(crate) fn read<M: Module>(
    module: &M,
    parameters: &[Parameter],
    wanted: Vec<bool>,
    show: &mut dyn FnMut(usize, TensorData) -> Result<()>,
) -> Result<()> {
    let mut read = Read { parameters, wanted, show, failed: None };
    module.visit(&mut read);
    read.failed.map_or(Ok(()), Err)
}

struct Read<'a> {
    parameters: &'a [Parameter],
    /// Each is shown once.
    wanted: Vec<bool>,
    show: &'a mut dyn FnMut(usize, TensorData) -> Result<()>,
    failed: Option<Error>,
}

impl ModuleVisitor for Read<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(at) = place(self.parameters, param.id).filter(|_| self.failed.is_none()) else { return };
        if std::mem::take(&mut self.wanted[at]) {
            let shown = values::read(param.base().inner()).and_then(|data| (self.show)(at, data));
            self.failed = shown.err();
        }
    }
}

/// Values that go into the place of a parameter, by its number too.
pub(crate) type Values<'a> = dyn FnMut(usize, &Parameter) -> Result<TensorData> + 'a;

/// A module with other values.
pub(crate) fn replace<M: Module>(module: M, parameters: &[Parameter], values: &mut Values<'_>) -> Result<M> {
    let mut replace = Replace { parameters, values, failed: None };
    let module = module.map(&mut replace);
    replace.failed.map_or(Ok(module), Err)
}

struct Replace<'a> {
    parameters: &'a [Parameter],
    values: &'a mut Values<'a>,
    failed: Option<Error>,
}

impl ModuleMapper for Replace<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(at) = place(self.parameters, param.id).filter(|_| self.failed.is_none()) else { return param };
        match (self.values)(at, &self.parameters[at]) {
            Ok(data) => with_data(param, data),
            Err(error) => {
                self.failed = Some(error);
                param
            }
        }
    }
}

/// A module whose parameters have their shapes and no memory, a number each that is seen as many times as there are elements; and
/// these ids.
pub(crate) fn frame<M: Module>(module: M, parameters: &[Parameter], ids: &[ParamId]) -> M {
    module.map(&mut Frame(parameters, ids))
}

struct Frame<'a>(&'a [Parameter], &'a [ParamId]);

impl ModuleMapper for Frame<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(at) = place(self.0, param.id) else { return param };
        let (shape, device) = (param.dims(), param.lazy_device());
        let (_, _, mapper) = param.consume();
        Param::from_mapped_value(self.1[at], Tensor::<D>::zeros([1; D], &device).expand(shape), mapper)
    }
}

/// An id that follows from a name, so that what an optimizer has saved of a parameter is found again by another process.
pub(crate) fn named_id(name: &str) -> ParamId {
    ParamId::from(fnv::hash64(name.bytes()))
}

/// A module from whose trained parameters a graph begins.
pub(crate) fn tracked<M: Module>(module: M, parameters: &[Parameter]) -> M {
    module.map(&mut Track(parameters))
}

struct Track<'a>(&'a [Parameter]);

impl ModuleMapper for Track<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match place(self.0, param.id) {
            Some(at) if self.0[at].is_trained => param.map(|value| value.autodiff().require_grad()),
            _ => param,
        }
    }
}

/// Has everything else than these parameters, running averages and integers say, changed by what is said of its bytes.
pub(crate) fn share<M: Module>(
    module: M,
    parameters: &[Parameter],
    change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
) -> Result<M> {
    // Running averages have what each thread has seen last apart until they are looked at.
    drop(module.valid());
    let mut share = Share { parameters, change, failed: None };
    let module = module.map(&mut share);
    share.failed.map_or(Ok(module), Err)
}

/// The same elements, changed by what is said of their bytes.
pub(crate) fn changed(data: TensorData, change: &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<TensorData> {
    let (bytes, shape, dtype) = data.into_parts();
    let mut bytes = bytes.to_vec();
    change(&mut bytes)?;
    Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
}

struct Share<'a> {
    parameters: &'a [Parameter],
    change: &'a mut dyn FnMut(&mut [u8]) -> Result<()>,
    failed: Option<Error>,
}

impl ModuleMapper for Share<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match place(self.parameters, param.id) {
            Some(_) => param,
            None => self.shared(param),
        }
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        self.shared(param)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        self.shared(param)
    }
}

impl Share<'_> {
    fn shared<const D: usize, K: Autodiff>(&mut self, param: Param<Tensor<D, K>>) -> Param<Tensor<D, K>>
    where
        Tensor<D, K>: module::Parameter,
    {
        if self.failed.is_some() {
            return param;
        }
        match values::read(param.base().inner()).and_then(|data| changed(data, self.change)) {
            Ok(data) => with_data(param, data),
            Err(error) => {
                self.failed = Some(error);
                param
            }
        }
    }
}

/// Takes the gradients of these parameters out of what a backward has left, with the number of each. Gradients that a parameter has in
/// several places are added.
pub(crate) fn gradients<M: Module>(
    module: &M,
    parameters: &[Parameter],
    from: &mut Gradients,
) -> Result<Vec<(usize, TensorData)>> {
    let mut sum = Sum { parameters, from, sums: GradientsParams::new() };
    module.visit(&mut sum);
    let mut sums = sum.sums;
    read_gradients(module, parameters, &mut sums)
}

struct Sum<'a> {
    parameters: &'a [Parameter],
    from: &'a mut Gradients,
    sums: GradientsParams,
}

impl ModuleVisitor for Sum<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if place(self.parameters, param.id).is_none() {
            return;
        }
        let Some(gradient) = param.base().grad_remove(self.from) else { return };
        let sum = match self.sums.remove::<D>(param.id) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.sums.register(param.id, sum);
    }
}

/// Takes the gradients of these parameters out of a set, with the number of each.
pub(crate) fn read_gradients<M: Module>(
    module: &M,
    parameters: &[Parameter],
    from: &mut GradientsParams,
) -> Result<Vec<(usize, TensorData)>> {
    let mut take = Take { parameters, from, taken: Ok(vec![]) };
    module.visit(&mut take);
    take.taken
}

struct Take<'a> {
    parameters: &'a [Parameter],
    from: &'a mut GradientsParams,
    taken: Result<Vec<(usize, TensorData)>>,
}

impl ModuleVisitor for Take<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (Some(at), Ok(taken)) = (place(self.parameters, param.id), &mut self.taken) else { return };
        let Some(gradient) = self.from.remove::<D>(param.id) else { return };
        match values::read(gradient) {
            Ok(data) => taken.push((at, data)),
            Err(error) => self.taken = Err(error),
        }
    }
}

/// A set of gradients, by the numbers of the parameters, each in its parameter's type.
pub(crate) fn write_gradients<M: Module>(
    module: &M,
    parameters: &[Parameter],
    gradient: impl FnMut(usize) -> Result<Option<TensorData>>,
) -> Result<GradientsParams> {
    let mut give = Give { parameters, gradient, given: Ok(GradientsParams::new()) };
    module.visit(&mut give);
    give.given
}

struct Give<'a, F> {
    parameters: &'a [Parameter],
    gradient: F,
    given: Result<GradientsParams>,
}

impl<F: FnMut(usize) -> Result<Option<TensorData>>> ModuleVisitor for Give<'_, F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (Some(at), Ok(given)) = (place(self.parameters, param.id), &mut self.given) else { return };
        match (self.gradient)(at) {
            Ok(Some(data)) => {
                let device = param.lazy_device().without_autodiff();
                given.register(param.id, Tensor::<D>::from_data(data, (&device, param.dtype())));
            }
            Ok(None) => {}
            Err(error) => self.given = Err(error),
        }
    }
}

/// A module of other values, each with its gradient; one without stays as it is.
pub(crate) fn with_gradients<M: Module>(
    module: M,
    parameters: &[Parameter],
    parts: &mut dyn FnMut(usize) -> Option<(TensorData, TensorData)>,
) -> (M, GradientsParams) {
    let mut lay = Lay { parameters, parts, gradients: GradientsParams::new() };
    let module = module.map(&mut lay);
    (module, lay.gradients)
}

struct Lay<'a> {
    parameters: &'a [Parameter],
    parts: &'a mut dyn FnMut(usize) -> Option<(TensorData, TensorData)>,
    gradients: GradientsParams,
}

impl ModuleMapper for Lay<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some((value, gradient)) = place(self.parameters, param.id).and_then(|at| (self.parts)(at)) else {
            return param;
        };
        let (device, dtype) = (param.lazy_device().without_autodiff(), gradient.dtype());
        self.gradients.register(param.id, Tensor::<D>::from_data(gradient, (&device, dtype)));
        with_data(param, value)
    }
}
