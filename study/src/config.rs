//! Clusters and jobs as people write them, turned into the model's plain data.
//!
//! Each file type mirrors one folder of `configs/`; units and sources are the
//! configuration crate's business. Nothing here computes: a value is either
//! copied, converted between units, or looked up in the silicon model.

mod codec;
pub mod curves;
mod designs;
mod engine;
mod exploration;
mod figures;
mod framework;
mod hardware;
mod job;
mod kernels;
mod launch;
mod layout;
mod llm;
mod loss;
pub(crate) mod measured;
mod names;
mod network;
mod overlap;
mod parts;
mod profile;
mod serving;
mod setter;
pub mod software;
mod stages;
mod study;
mod sustained;
mod sweep;
mod synthesis;
mod technology;

pub use codec::{BlockFile, CodecFile};
pub use designs::{Design, DesignsFile};
pub use engine::{
    AcceleratorFile, ClassName, ConstantsFile, EngineFile, FirstTokenFile, GenerationName, PolicyName,
    TransformerFile, UnseenErrorsFile,
};
pub use exploration::{
    CandidateFile, CertaintyFile, ExplorationFile, HiddenFile, LandmarkFile, OriginName, WorkloadFile,
};
pub use figures::{CellFile, ClaimFile, FigureFile, FiguresFile, RuleFile};
pub use framework::{FrameworkFile, ScheduleName, StatesFile};
pub use hardware::{ClusterFile, CpuName, GpuFile, TierFile};
pub use job::{CompressionFile, JobFile, PrecisionFile};
pub use kernels::{CurveFile, DeviceFile, KernelsFile, UnseenFile};
pub use launch::{LaunchFile, Launched, LaunchesFile, SplitLaunchFile};
pub use layout::{ChooseName, ParallelismFile, ParallelismTable};
pub use llm::LlmFile;
pub use loss::{LossFile, LossRateFile, LossesFile};
pub use measured::Replacement;
pub use network::{NetworkFile, NetworkTierFile, NicFile, SwitchFile};
pub use overlap::OverlapFile;
pub use parts::{
    Derived, GpuModelName, L2File, LinksFile, MemoryFile, PartsFile, SmFile, WaferFile, derived,
};
pub use profile::ProfileFile;
pub use serving::{DistributionName, LengthsFile, ServingFile};
pub use setter::{Settable, Setter};
pub use study::StudyFile;
pub use sustained::SustainedFile;
#[cfg(feature = "hwcodec")]
pub(crate) use sweep::values_of_runs;
pub use sweep::{AssumptionFile, AxisFile, CrossoverFile, HeadlineFile, Scalar, ScenarioFile, SweepFile};
pub use synthesis::SynthesisFile;
pub use technology::TechnologyFile;

use trinity_config::Kind;

/// The kinds of configuration this crate reads.
pub const KINDS: &[Kind] = &[
    Kind::of::<GpuFile>("gpus", "a GPU"),
    Kind::of::<NicFile>("nics", "a network interface"),
    Kind::of::<SwitchFile>("switches", "a network switch"),
    Kind::of::<CodecFile>("codecs", "a codec in silicon"),
    Kind::of::<LlmFile>("llms", "a language model"),
    Kind::of::<ClusterFile>("clusters", "a cluster of GPUs"),
    Kind::of::<FrameworkFile>("frameworks", "a training framework"),
    Kind::of::<SweepFile>("sweeps", "a sweep"),
    Kind::of::<ProfileFile>("profiles", "a codec in software"),
    Kind::of::<DesignsFile>("designs", "alternatives for each stage of a codec"),
    Kind::of::<FiguresFile>("figures", "the figures of a paper, judged"),
    Kind::of::<ExplorationFile>("explorations", "codecs to choose from"),
    Kind::of::<TechnologyFile>("technologies", "what gates and bits cost at a node"),
    Kind::of::<KernelsFile>("kernels", "measured kernels of a GPU type"),
    software::KIND,
    Kind::of::<SynthesisFile>("silicon", "what synthesis found of RTL"),
    Kind::of::<EngineFile>("engines", "a serving engine"),
    Kind::of::<LaunchesFile>("launches", "how benchmarks launched a serving engine"),
    Kind::of::<LossesFile>("losses", "what coding caches costs answers"),
    Kind::of::<AcceleratorFile>("accelerators", "a GPU as serving sees it"),
    Kind::of::<TransformerFile>("transformers", "a served model"),
];
