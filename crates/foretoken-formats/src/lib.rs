//! Model files, tokenizers and chat templates: untrusted bytes end here.
