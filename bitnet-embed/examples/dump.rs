//! dump
use bitnet_embed::{BitNetEmbedding, GgufStore, I2sBackend, batch::RaggedBatch};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_i2s::{attention::AttentionShape, linear::LinearLayer, ops, rope::RopeTable};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let device = burn::tensor::Device::flex();
    let mut st = GgufStore::open(&a[1]).unwrap();
    let m = BitNetEmbedding::<I2sBackend>::from_store(&mut st, &device).unwrap();
    let c = st.plan().config.clone();
    let ids: Vec<i32> = a[2].split(',').map(|x| x.parse().unwrap()).collect();
    let b = RaggedBatch::new(&[ids.len()]);
    let n = ids.len();
    let x: Tensor<1, Int> = Tensor::from_data(TensorData::new(ids, [n]), (&device, DType::I32));
    let h = m.embed_tokens.forward(x, c.embedding_scale);
    let p = |h: &Tensor<2>| {
        let v: Vec<f32> = h.clone().into_data().try_into_vec().unwrap();
        println!("{v:?}");
    };
    let l = &m.layers[0];
    let at = &l.self_attn;
    let hn = l.input_layernorm.forward(h);
    p(&hn);
    let [q, k, v] = LinearLayer::project([&at.q_proj, &at.k_proj, &at.v_proj], hn);
    p(&q);
    p(&k);
    p(&v);
    let rt = RopeTable::new(c.head_dim, c.layers[0].rope_theta, n);
    let q = at.q_norm.with_weight(|w| ops::head_norm_rope(q, w, at.q_norm.eps(), &rt, b.positions()));
    let k = at.k_norm.with_weight(|w| ops::head_norm_rope(k, w, at.k_norm.eps(), &rt, b.positions()));
    p(&q);
    p(&k);
    let s = AttentionShape {
        num_heads: c.num_heads,
        num_kv_heads: c.num_kv_heads,
        head_dim: c.head_dim,
        scale: c.attention_scale,
        causal: true,
        window: c.layers[0].window,
    };
    p(&ops::attention(q, k, v, &s, b.offsets()));
}
