//! The store's client: over our server in every dialect, and over servers that do what no server should.

mod floods;
mod honest;
mod hostile;
mod identity;
mod scripted;
