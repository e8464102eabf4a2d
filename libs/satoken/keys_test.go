package satoken_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"binnacle/libs/satoken"
)

// pemBlock returns a PEM block, and panics with the error of its encoding.
func pemBlock(kind string, der []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// TestLoadKeysReadsSupportedPEMBlocks checks which PEM blocks are read as public and as private
// keys.
func TestLoadKeysReadsSupportedPEMBlocks(t *testing.T) {
	rsaPrivate, ecPrivate := rsaKey(), ecKey(t, elliptic.P384())
	ecDER, ecErr := x509.MarshalECPrivateKey(ecPrivate)
	pkcs8, pkcs8Err := x509.MarshalPKCS8PrivateKey(rsaPrivate)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, certErr := x509.CreateCertificate(rand.Reader, template, template, ecPrivate.Public(), ecPrivate)
	ed25519Public, ed25519Private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed25519DER, ed25519Err := x509.MarshalPKCS8PrivateKey(ed25519Private)
	p224 := ecKey(t, elliptic.P224())
	p224DER, p224Err := x509.MarshalECPrivateKey(p224)
	for name, test := range map[string]struct {
		data    []byte
		want    []crypto.Signer
		private bool
	}{
		"RSA private key": {
			data:    pemBlock("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaPrivate), nil),
			want:    []crypto.Signer{rsaPrivate},
			private: true,
		},
		"PKCS 8":         {data: pemBlock("PRIVATE KEY", pkcs8, pkcs8Err), want: []crypto.Signer{rsaPrivate}, private: true},
		"EC private key": {data: pemBlock("EC PRIVATE KEY", ecDER, ecErr), want: []crypto.Signer{ecPrivate}, private: true},
		"EC with parameters": {
			data:    append(pemBlock("EC PARAMETERS", []byte{6}, nil), pemBlock("EC PRIVATE KEY", ecDER, ecErr)...),
			want:    []crypto.Signer{ecPrivate},
			private: true,
		},
		"public keys": {
			data: append(publicKeyPEM(t, rsaPrivate.Public()), publicKeyPEM(t, ecPrivate.Public())...),
			want: []crypto.Signer{rsaPrivate, ecPrivate},
		},
		"RSA public key": {
			data: pemBlock("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaPrivate.PublicKey), nil),
			want: []crypto.Signer{rsaPrivate},
		},
		"certificate":           {data: pemBlock("CERTIFICATE", cert, certErr), want: []crypto.Signer{ecPrivate}},
		"Ed25519":               {data: pemBlock("PRIVATE KEY", ed25519DER, ed25519Err)},
		"Ed25519 public":        {data: publicKeyPEM(t, ed25519Public)},
		"P-224":                 {data: pemBlock("EC PRIVATE KEY", p224DER, p224Err)},
		"no PEM":                {data: []byte("x")},
		"invalid DER":           {data: pemBlock("PUBLIC KEY", []byte("x"), nil)},
		"encrypted private key": {data: pemBlock("ENCRYPTED PRIVATE KEY", []byte("x"), nil)},
		"empty":                 {data: nil},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys.pem")
			if err := os.WriteFile(path, test.data, 0o600); err != nil {
				t.Fatal(err)
			}
			keys, err := satoken.LoadPublicKeys(path, path)
			if (err == nil) != (test.want != nil) || len(keys) != len(test.want) {
				t.Fatalf("got %d keys, %v, want %d", len(keys), err, len(test.want))
			}
			for i, k := range publicKeys(t, test.want...) {
				if keys[i].ID != k.ID {
					t.Errorf("key %d is %s, want %s", i, keys[i].ID, k.ID)
				}
			}
			signer, err := satoken.LoadPrivateKey(path)
			if (err == nil) != test.private {
				t.Fatalf("private key: %v, want success: %v", err, test.private)
			}
			if test.private && !signer.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(test.want[0].Public()) {
				t.Errorf("got private key %v, want the one in the file", signer.Public())
			}
		})
	}
	if _, err := satoken.LoadPublicKeys(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("LoadPublicKeys() of a missing file = nil, want an error")
	}
}

// TestPublishedKeysVerify checks that another implementation can read the published keys and verify
// tokens with them.
func TestPublishedKeysVerify(t *testing.T) {
	for _, key := range []crypto.Signer{rsaKey(), ecKey(t, elliptic.P256()), ecKey(t, elliptic.P521())} {
		doc, err := satoken.JWKS(publicKeys(t, key))
		if err != nil {
			t.Fatal(err)
		}
		var published jose.JSONWebKeySet
		if err := json.Unmarshal(doc, &published); err != nil || len(published.Keys) != 1 || !published.Keys[0].Valid() {
			t.Fatalf("%v in %s", err, doc)
		}
		jsonWebKey := published.Keys[0]
		sig, err := jose.ParseSigned(sign(t, key, nil), []jose.SignatureAlgorithm{jose.SignatureAlgorithm(jsonWebKey.Algorithm)})
		if err != nil || sig.Signatures[0].Header.KeyID != jsonWebKey.KeyID {
			t.Fatalf("got error %v, or another key ID, want %q in the header", err, jsonWebKey.KeyID)
		}
		if _, err := sig.Verify(jsonWebKey); err != nil {
			t.Error(err)
		}
	}
}

// TestDiscoveryRejectsInvalidURLs checks the discovery document, and the errors for invalid URLs.
func TestDiscoveryRejectsInvalidURLs(t *testing.T) {
	keys := publicKeys(t, ecKey(t, elliptic.P256()), rsaKey(), ecKey(t, elliptic.P256()))
	doc, err := satoken.Discovery("https://issuer", "https://issuer/openid/v1/jwks", keys)
	want := `{"issuer":"https://issuer","jwks_uri":"https://issuer/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}`
	if err != nil || string(doc) != want {
		t.Errorf("got %s, %v, want %s", doc, err, want)
	}
	for _, invalid := range []string{"http://issuer", "issuer", "https://", "https://issuer?x=y", "https://issuer#x", "%"} {
		if _, err := satoken.Discovery(invalid, "https://issuer", keys); err == nil {
			t.Errorf("Discovery() with issuer %q: got no error, want one", invalid)
		}
		if _, err := satoken.Discovery("https://issuer", invalid, keys); err == nil {
			t.Errorf("Discovery() with keys at %q: got no error, want one", invalid)
		}
	}
}

// TestIncompleteSignersAreRejected checks that a signer and an authenticator need an issuer and
// keys.
func TestIncompleteSignersAreRejected(t *testing.T) {
	if _, err := satoken.NewSigner("", rsaKey()); err == nil {
		t.Error("NewSigner() without an issuer = nil, want an error")
	}
	var p224 *ecdsa.PrivateKey = ecKey(t, elliptic.P224())
	if _, err := satoken.NewSigner(issuer, p224); err == nil {
		t.Error("NewSigner() with a P-224 key = nil, want an error")
	}
	for name, config := range map[string]satoken.Config{
		"no issuer":  {Keys: publicKeys(t, rsaKey()), Objects: fullFixture()},
		"no keys":    {Issuers: []string{issuer}, Objects: fullFixture()},
		"no objects": {Issuers: []string{issuer}, Keys: publicKeys(t, rsaKey())},
	} {
		if _, err := satoken.New(config); err == nil {
			t.Errorf("New() with %s: got no error, want one", name)
		}
	}
}
