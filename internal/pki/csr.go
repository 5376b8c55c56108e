package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"

	"better/compute/internal/problem"
)

const maxCSR = 8 << 10

// ParseCSR returns the public key of a certificate request, PEM or DER, whose sender proved to hold the private
// key. Names, extensions and attributes are ignored. INVALID_INPUT when it is over 8 KiB, is not exactly one
// request, is not signed by its own key, or has a key other than Ed25519, P-256 or P-384.
func ParseCSR(csr []byte) (crypto.PublicKey, error) {
	if len(csr) > maxCSR {
		return nil, refuseCSR("The certificate request is longer than %d bytes.", maxCSR)
	}
	der := csr
	if bytes.HasPrefix(bytes.TrimSpace(csr), []byte("-----BEGIN")) {
		block, rest := pem.Decode(csr)
		if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) != 0 {
			return nil, refuseCSR("The certificate request is not one PEM block of type CERTIFICATE REQUEST.")
		}
		der = block.Bytes
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, refuseCSR("The certificate request cannot be parsed.").Because(err)
	}
	// Before the signature is looked at, so that a huge RSA key costs nothing.
	switch key := request.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() {
			return nil, refuseCSR("The key is not Ed25519, P-256 or P-384.")
		}
	default:
		return nil, refuseCSR("The key is not Ed25519, P-256 or P-384.")
	}
	switch request.SignatureAlgorithm {
	case x509.PureEd25519, x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512:
	default:
		return nil, refuseCSR("The certificate request is signed with %s.", request.SignatureAlgorithm)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, refuseCSR("The certificate request is not signed by its own key.").Because(err)
	}
	return request.PublicKey, nil
}

func refuseCSR(format string, args ...any) *problem.Error {
	e := problem.New(problem.InvalidInput, format, args...)
	return e.With("issues", []problem.Issue{{Path: "csr", Message: e.Message}})
}
