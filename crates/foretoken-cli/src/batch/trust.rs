//! Whom to believe that they are who they say: TLS for endpoints.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::CliError;

/// TLS that believes the certificates in a file, or those that the system believes.
pub fn config(ca_file: Option<&Path>) -> Result<ClientConfig, CliError> {
    match ca_file {
        Some(path) => {
            let given = certificates(path)?;
            let mut roots = RootCertStore::empty();
            for certificate in &given {
                roots.add(certificate.clone()).map_err(|error| bad(path, error.to_string()))?;
            }
            let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            let chains = chains.map_err(|error| bad(path, error.to_string()))?;
            let config = versions().dangerous().with_custom_certificate_verifier(Arc::new(Given { given, chains }));
            Ok(config.with_no_client_auth())
        }
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(CliError::Argument {
                    found: "this system has no list of certificates to trust".into(),
                    wanted: "install one (ca-certificates), or give --ca-file FILE".into(),
                });
            }
            Ok(versions().with_root_certificates(roots).with_no_client_auth())
        }
    }
}

/// TLS that believes nobody, for endpoints without it.
pub fn nobody() -> ClientConfig {
    versions().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn versions() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let builder = ClientConfig::builder_with_provider(provider());
    builder.with_safe_default_protocol_versions().expect("the provider has them")
}

fn bad(path: &Path, found: String) -> CliError {
    CliError::BadFile {
        path: path.into(),
        found,
        wanted: "give a file of certificates in PEM, which begin with -----BEGIN CERTIFICATE-----".into(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CliError> {
    let bytes = std::fs::read(path).map_err(|error| CliError::File { action: "read", path: path.into(), error })?;
    let given: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match given {
        Err(error) => Err(bad(path, error.to_string())),
        Ok(given) if given.is_empty() => Err(bad(path, "there is no certificate in it".into())),
        Ok(given) => Ok(given),
    }
}

/// Believes certificates that were given, and those that they vouch for. What `openssl req -x509` makes for one server is a
/// certificate that says it may vouch for others, which chains do not allow at their end: such a one is believed when it is
/// itself among those given and names the server.
#[derive(Debug)]
struct Given {
    given: Vec<CertificateDer<'static>>,
    chains: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Given {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.given.iter().any(|given| given.as_ref() == certificate.as_ref()) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.chains.verify_server_cert(certificate, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
