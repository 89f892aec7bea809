//! Texts to vectors: the whole path on one page.

use crate::ahead;
use crate::batch::{RaggedBatch, plan_batches};
use crate::config::{ModelConfig, Overrides};
pub use crate::embed_error::EmbedError;
use crate::model::BitNetEmbedding;
use crate::output::Normalization;
use crate::store::GgufStore;
use crate::suspects::Suspects;
use crate::tokenizer::{Encoded, Tokenizer};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_i2s::isa::Isa;
use burn_i2s::linear::{ComputeBackend, F16Backend, I2sBackend};
use burn_i2s::pooling::Pooling;
use rayon::prelude::*;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Tokens of one forward. Enough to keep the kernels busy, few enough that activations stay in cache; memory above the
/// mapped file grows with it.
const DEFAULT_TOKEN_BUDGET: usize = 512;

/// Embeds texts with the model of one GGUF file.
///
/// Shared freely between threads. A text's vector has the same bits alone or in any company, in any order, on any number
/// of threads and on any CPU.
///
/// ```no_run
/// use bitnet_embed::Embedder;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let embedder = Embedder::open("bitnet-embeddings-0.6b-bf16-i2_s.gguf")?;
/// let vectors = embedder.embed(&["The cat sat on the mat.", "Die Katze sitzt auf der Matte."])?;
/// assert_eq!(vectors[0].len(), embedder.config().hidden_size);
/// # Ok(())
/// # }
/// ```
pub struct Embedder {
    model: Model,
    config: ModelConfig,
    tokenizer: Tokenizer,
    device: Device,
    pool: Option<rayon::ThreadPool>,
    isa: Isa,
    normalization: Normalization,
    max_tokens: usize,
    token_budget: usize,
    path: Option<PathBuf>,
    suspects: Suspects,
    notes: Vec<String>,
}

/// The model on the backend that was chosen for it.
#[derive(Debug)]
enum Model {
    I2s(BitNetEmbedding<I2sBackend>),
    F16(BitNetEmbedding<F16Backend>),
}

/// Which linear layers compute the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// [`I2sBackend`]: integer products; BitNet files alone. The default for them.
    I2s,
    /// [`F16Backend`]: f32 products; any file. The default for those that are not BitNet.
    F16,
}

impl BackendKind {
    /// The backend's name, as tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::I2s => I2sBackend::NAME,
            Self::F16 => F16Backend::NAME,
        }
    }
}

/// What embedding a list of texts took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbedReport {
    /// Tokens computed, special tokens included.
    pub tokens: usize,
    /// Forwards run, one a batch.
    pub forwards: usize,
    /// Indices of the texts that were cut to the token limit.
    pub truncated: Vec<usize>,
}

/// Is given the vectors of a long list as they come, see [`Embedder::embed_into`].
pub trait Receiver: Send {
    /// What ends the work before the list's end.
    type Error: From<EmbedError> + Send;

    /// So many more texts are computed; any of the part at hand, and told after every forward.
    fn computed(&mut self, texts: usize) {
        let _ = texts;
    }

    /// The vectors of the next part: those of the first texts at first, and so on.
    ///
    /// # Errors
    /// One that ends the work.
    fn receive(&mut self, vectors: Vec<Vec<f32>>) -> Result<(), Self::Error>;
}

/// All vectors in one list.
struct Collected(Vec<Vec<f32>>);

impl Receiver for Collected {
    type Error = EmbedError;

    fn receive(&mut self, vectors: Vec<Vec<f32>>) -> Result<(), EmbedError> {
        self.0.extend(vectors);
        Ok(())
    }
}

/// Options of an [`Embedder`].
#[derive(Clone, Debug, Default)]
pub struct EmbedderBuilder {
    threads: Option<usize>,
    isa: Option<Isa>,
    backend: Option<BackendKind>,
    device: Option<Device>,
    pooling: Option<Pooling>,
    normalization: Normalization,
    max_tokens: Option<usize>,
    token_budget: Option<usize>,
    tokenizer: Option<PathBuf>,
    overrides: Overrides,
    no_mmap: bool,
}

impl EmbedderBuilder {
    /// Gives the embedder a thread pool of its own. Without it, work runs on the caller's current rayon pool.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Uses this instruction-set level rather than the CPU's best. The vectors are the same.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    /// Chooses the linear layers; by default a BitNet file is computed in integers and any other in f32.
    pub fn backend(mut self, backend: BackendKind) -> Self {
        self.backend = Some(backend);
        self
    }

    /// The Burn device; by default Burn's own default, Flex where it is built in.
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Replaces the file's pooling.
    pub fn pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = Some(pooling);
        self
    }

    /// How vectors are scaled; unit length by default.
    pub fn normalization(mut self, normalization: Normalization) -> Self {
        self.normalization = normalization;
        self
    }

    /// Cuts longer texts to this many tokens, special tokens included and kept; the model's context by default.
    pub fn max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens = Some(max_tokens);
        self
    }

    /// Tokens of one forward (512 by default). More memory for a higher value; the vectors are the same.
    pub fn token_budget(mut self, token_budget: usize) -> Self {
        self.token_budget = Some(token_budget);
        self
    }

    /// Uses this `tokenizer.json` rather than the file's own tokenizer. Added tokens for which the model has no row are
    /// ordinary text, as [`Tokenizer::from_json_for_rows`] has it; the others must be those that the file lists.
    pub fn tokenizer(mut self, path: impl Into<PathBuf>) -> Self {
        self.tokenizer = Some(path.into());
        self
    }

    /// Replaces metadata keys of the file.
    pub fn overrides(mut self, overrides: Overrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// Whether the file is mapped into memory, as it is by default, or read into it.
    ///
    /// Truncating a file that is mapped ends the process on Unix (`SIGBUS`), and changing it changes the vectors; a file
    /// that was read may do as it likes. Reading costs the file's size in memory that other processes do not share.
    pub fn mmap(mut self, mmap: bool) -> Self {
        self.no_mmap = !mmap;
        self
    }

    /// Opens a GGUF file.
    ///
    /// # Errors
    /// When the file is refused, its tokenizer does not fit it, or the options do not fit the model.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Embedder, EmbedError> {
        let open = if self.no_mmap { GgufStore::read_with } else { GgufStore::open_with };
        let store = open(path.as_ref(), &self.overrides)?;
        self.build(store, Some(path.as_ref().to_owned()))
    }

    /// Takes a GGUF file from memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(self, bytes: impl Into<bytes::Bytes>) -> Result<Embedder, EmbedError> {
        let store = GgufStore::from_bytes(bytes, &self.overrides)?;
        self.build(store, None)
    }

    fn build(self, mut store: GgufStore, path: Option<PathBuf>) -> Result<Embedder, EmbedError> {
        let pool = match self.threads {
            None => None,
            Some(threads) => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                Some(pool.map_err(|source| EmbedError::Threads { threads, source })?)
            }
        };
        let config = store.plan().config.clone();
        let metadata = store.file().metadata().with_overrides(self.overrides.as_slice());
        let tokenizer = match &self.tokenizer {
            Some(json) => {
                Tokenizer::from_file_for_gguf(json, config.vocab_size, metadata).map_err(|source| (None, source))
            }
            None => Tokenizer::from_gguf(metadata).map_err(|source| (path.clone(), source)),
        };
        let tokenizer = tokenizer.map_err(|(path, source)| EmbedError::Tokenizer { path, source })?;
        if tokenizer.id_count() > config.vocab_size {
            let (tokens, vocab_size) = (tokenizer.id_count(), config.vocab_size);
            return Err(EmbedError::Vocabulary { path, tokenizer: self.tokenizer, tokens, vocab_size });
        }
        let at_least = tokenizer.special_count() + 1;
        if config.max_position < at_least {
            return Err(EmbedError::Context { path, context: config.max_position, at_least });
        }
        let max_tokens = self.max_tokens.unwrap_or(config.max_position);
        if max_tokens < at_least {
            return Err(EmbedError::MaxTokens { max_tokens, at_least });
        }
        let notes = store.plan().notes();
        let device = self.device.unwrap_or_default();
        let default = if store.plan().is_ternary() { BackendKind::I2s } else { BackendKind::F16 };
        let pooling = self.pooling.unwrap_or(config.pooling);
        let model = match self.backend.unwrap_or(default) {
            BackendKind::I2s => Model::I2s(BitNetEmbedding::from_store(&mut store, &device)?.with_pooling(pooling)),
            BackendKind::F16 => Model::F16(BitNetEmbedding::from_store(&mut store, &device)?.with_pooling(pooling)),
        };
        Ok(Embedder {
            model,
            tokenizer,
            device,
            pool,
            isa: self.isa.unwrap_or_else(Isa::best),
            normalization: self.normalization,
            max_tokens: max_tokens.min(config.max_position),
            config,
            path,
            suspects: store.into_suspects(),
            notes,
            token_budget: self.token_budget.unwrap_or(DEFAULT_TOKEN_BUDGET),
        })
    }
}

impl Embedder {
    /// Opens a GGUF file with the defaults.
    ///
    /// # Errors
    /// As [`EmbedderBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, EmbedError> {
        Self::builder().open(path)
    }

    /// Options first.
    pub fn builder() -> EmbedderBuilder {
        EmbedderBuilder::default()
    }

    /// One vector of `hidden_size` values a text, in the order given. A text longer than the limit is cut, its special
    /// tokens kept; [`embed_with_report`](Self::embed_with_report) tells which.
    ///
    /// A long list is worked through in parts of some thousands of tokens, each sorted into batches by itself; the next
    /// part is tokenized beside the forwards of the one before. Besides vectors, memory holds the ids of two parts.
    ///
    /// # Errors
    /// When the tokenizer refuses a text, a text has no tokens, or the model's own weights overflow: the first text in
    /// the order of the parts. Texts are looked at as their part comes up, so a bad one ends the call after the forwards
    /// of the parts before it.
    pub fn embed<S: AsRef<str> + Sync>(&self, texts: &[S]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.embed_with_report(texts).map(|(vectors, _)| vectors)
    }

    /// Like [`embed`](Self::embed), and what it took.
    ///
    /// # Errors
    /// As [`embed`](Self::embed).
    pub fn embed_with_report<S: AsRef<str> + Sync>(
        &self,
        texts: &[S],
    ) -> Result<(Vec<Vec<f32>>, EmbedReport), EmbedError> {
        let mut vectors = Collected(Vec::with_capacity(texts.len()));
        let report = self.embed_into(texts, &mut vectors)?;
        Ok((vectors.0, report))
    }

    /// Like [`embed`](Self::embed), and hands the vectors over part by part rather than at the end.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), and those of the receiver.
    pub fn embed_into<S: AsRef<str> + Sync, R: Receiver>(
        &self,
        texts: &[S],
        receiver: &mut R,
    ) -> Result<EmbedReport, R::Error> {
        let mut report = EmbedReport::default();
        let parts = ahead::parts(texts.iter().map(|text| text.as_ref().len()), self.token_budget);
        let encode = |part: Range<usize>| -> Result<Vec<Encoded>, R::Error> {
            // Not collected as a `Result`, for that is any of the errors rather than the first.
            let texts = texts[part.clone()].par_iter();
            let encoded: Vec<_> =
                texts.map(|text| self.tokenizer.encode_truncated(text.as_ref(), self.max_tokens)).collect();
            let numbered = part.zip(encoded);
            let checked = numbered.map(|(text, encoded)| {
                let encoded = encoded.map_err(|source| EmbedError::Text { text, source })?;
                self.check_ids(text, &encoded.ids)?;
                Ok(encoded)
            });
            checked.collect()
        };
        let compute = |part: Range<usize>, encoded: Vec<Encoded>| {
            let mut vectors = vec![Vec::new(); part.len()];
            let cut = part.clone().zip(&encoded).filter(|(_, encoded)| encoded.truncated);
            report.truncated.extend(cut.map(|(text, _)| text));
            let ids: Vec<&[u32]> = encoded.iter().map(|encoded| &encoded.ids[..]).collect();
            // Again, as without a pool of its own the embedder is moved into the global one, whose threads have no level.
            self.isa.scope(|| {
                let computed = &mut |texts| receiver.computed(texts);
                self.forward_all(part.start, &ids, &mut vectors, &mut report, computed)
            })?;
            receiver.receive(vectors)
        };
        self.install(|| ahead::compute_all(&parts, encode, compute))?;
        Ok(report)
    }

    /// One vector a list of token ids, as [`embed`](Self::embed); the ids are taken as they are.
    ///
    /// # Errors
    /// When a list is empty, an id is not in the vocabulary, or the model's own weights overflow.
    pub fn embed_ids(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let ids: Vec<&[u32]> = texts.iter().map(|ids| &ids[..]).collect();
        ids.iter().enumerate().try_for_each(|(text, ids)| self.check_ids(text, ids))?;
        let mut vectors = vec![Vec::new(); texts.len()];
        self.install(|| self.forward_all(0, &ids, &mut vectors, &mut EmbedReport::default(), &mut |_| ()))?;
        Ok(vectors)
    }

    /// A forward needs a token, and may look up no row that the token table does not have, whoever made the ids.
    fn check_ids(&self, text: usize, ids: &[u32]) -> Result<(), EmbedError> {
        let vocab_size = self.config.vocab_size;
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(&id) => Err(EmbedError::TokenId { text, id, vocab_size }),
            None if ids.is_empty() => Err(EmbedError::NoTokens { text }),
            None => Ok(()),
        }
    }

    /// The token ids of a text, special tokens included, cut to nothing.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, EmbedError> {
        self.tokenizer.encode(text).map_err(|source| EmbedError::Tokenizer { path: None, source })
    }

    /// What the file says the model is.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that longer texts are cut to.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// What a reader of the vectors should know of the file, one line each; see
    /// [`ModelPlan::notes`](crate::model::ModelPlan::notes).
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Which linear layers compute the model.
    pub fn backend(&self) -> BackendKind {
        match self.model {
            Model::I2s(_) => BackendKind::I2s,
            Model::F16(_) => BackendKind::F16,
        }
    }

    /// One forward a batch; every vector goes to its text's place in `vectors`, tokens and forwards are added to `report`.
    /// `first` is the number of the first text in errors; `computed` is told after each forward how many texts it was.
    fn forward_all(
        &self,
        first: usize,
        texts: &[&[u32]],
        vectors: &mut [Vec<f32>],
        report: &mut EmbedReport,
        computed: &mut dyn FnMut(usize),
    ) -> Result<(), EmbedError> {
        let lengths: Vec<usize> = texts.iter().map(|ids| ids.len()).collect();
        report.tokens += lengths.iter().sum::<usize>();
        for members in plan_batches(&lengths, self.token_budget) {
            let batch = RaggedBatch::new(&members.iter().map(|&text| lengths[text]).collect::<Vec<_>>());
            let ids: Vec<i32> = members.iter().flat_map(|&text| texts[text]).map(|&id| id as i32).collect();
            let pooled = self.forward(ids, &batch);
            report.forwards += 1;
            for (&text, vector) in members.iter().zip(pooled.chunks_exact(self.config.hidden_size)) {
                if vector.iter().any(|value| !value.is_finite()) {
                    let weight = self.suspects.find(texts[text]).map(Box::new);
                    return Err(EmbedError::NotFinite { path: self.path.clone(), text: first + text, weight });
                }
                vectors[text] = vector.to_vec();
                self.normalization.apply(&mut vectors[text]);
            }
            computed(members.len());
        }
        Ok(())
    }

    fn forward(&self, ids: Vec<i32>, batch: &RaggedBatch) -> Vec<f32> {
        let tokens = ids.len();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [tokens]), (&self.device, DType::I32));
        let pooled = match &self.model {
            Model::I2s(model) => model.forward(ids, batch),
            Model::F16(model) => model.forward(ids, batch),
        };
        pooled.into_data().try_into_vec().expect("the operations give f32")
    }

    /// Runs on the embedder's own threads if it has some, at its instruction-set level.
    fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let work = || self.isa.scope(work);
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder")
            .field("backend", &self.backend())
            .field("isa", &self.isa)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
