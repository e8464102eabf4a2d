package certs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// Default lifetimes of certificates.
const (
	DefaultLifetime   = 365 * 24 * time.Hour
	DefaultCALifetime = 10 * DefaultLifetime
)

// renewBefore is the remaining lifetime below which Ensure replaces a certificate.
const renewBefore = 30 * 24 * time.Hour

// MissingCAError reports a CA whose key or certificate is missing, damaged or about to
// expire. Ensure returns it instead of creating a CA if certificates of the old CA exist, or
// if Options.Renew is set. Options.NewCA makes Ensure replace the CA.
type MissingCAError struct {
	CA CA
	// Key is the path where the key is expected.
	Key string
	// Signed holds the paths of existing certificates of this CA. It may be empty.
	Signed []string
	// Cause is the reason why the CA cannot be used.
	Cause error
}

// Error implements error.
func (e *MissingCAError) Error() string {
	existing := "there is no certificate to renew"
	if n := len(e.Signed); n > 0 {
		existing = fmt.Sprintf("%d certificates that it signed exist (%s)", n, strings.Join(e.Signed, ", "))
	}
	return fmt.Sprintf("CA %s cannot be used: %v; %s. Restore %s from where it is kept, or run `certs --new-ca` to replace the CA and every certificate that it signed",
		e.CA, e.Cause, existing, e.Key)
}

// Unwrap returns the cause.
func (e *MissingCAError) Unwrap() error { return e.Cause }

// Ensure creates the certificates and keys that are missing, expire soon or do not
// match the options. It returns the paths of the files that it wrote.
//
// If it would have to replace a CA and Options.NewCA is not set, it writes nothing and
// returns a *MissingCAError. If an external CA has to sign certificates, it writes all
// other files and the signing requests, and then returns an *UnsignedError.
func Ensure(options Options) (created []string, err error) {
	layout := Layout{options.Dir}
	now := time.Now()
	programs := options.programs()
	signers, err := options.loadAuthorities(programs, now)
	if err != nil {
		return nil, err
	}
	for _, name := range append(Programs(), caFolder) {
		if err := os.MkdirAll(layout.Folder(name), 0o700); err != nil {
			return nil, err
		}
	}
	for _, ca := range CAs() {
		if signers[ca] != nil {
			continue
		}
		if signers[ca], err = createAuthority(layout.CA(ca), "binnacle-"+string(ca), now, options.caLifetime()); err != nil {
			return created, err
		}
		created = append(created, layout.CA(ca).Cert)
	}
	var unsigned UnsignedError
	for _, p := range programs {
		issued, err := options.ensureProgram(p, signers, now, &unsigned)
		created = append(created, issued...)
		if err != nil {
			return created, err
		}
	}
	isNew, err := ensureServiceAccountKeys(layout)
	if isNew {
		created = append(created, layout.ServiceAccountKey())
	}
	if err != nil {
		return created, err
	}
	for ca, a := range signers {
		if a.cert == nil { // only external CAs can lack a certificate
			unsigned.Missing = append(unsigned.Missing, layout.CA(ca).Cert)
		}
	}
	slices.Sort(unsigned.Missing)
	if len(unsigned.Requests)+len(unsigned.Missing) > 0 {
		return created, &unsigned
	}
	return created, nil
}

// loadAuthorities reads the CAs. The result has no entry for a CA that Ensure has to
// create. It returns a *MissingCAError for a CA that Ensure must not create.
func (o Options) loadAuthorities(programs []programFolder, now time.Time) (map[CA]*authority, error) {
	layout := Layout{o.Dir}
	for _, name := range o.ExternalCAs {
		if !slices.Contains(CAs(), name) {
			return nil, fmt.Errorf("CA %q is not one of %v", name, CAs())
		}
	}
	out := map[CA]*authority{}
	for _, name := range CAs() {
		pair := layout.CA(name)
		if slices.Contains(o.ExternalCAs, name) {
			a, err := loadExternal(pair)
			if err != nil {
				return nil, err
			}
			out[name] = a
			continue
		}
		a, err := loadAuthority(pair, now)
		if err == nil {
			out[name] = a
			continue
		}
		// The files of a CA may exist although this process cannot read them.
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		signed := certsSignedBy(programs, name)
		if !o.NewCA && (o.Renew || len(signed) > 0) {
			return nil, &MissingCAError{CA: name, Key: pair.Key, Signed: signed, Cause: err}
		}
	}
	return out, nil
}

// certsSignedBy returns the paths of the existing certificates that a CA signed.
func certsSignedBy(programs []programFolder, name CA) (out []string) {
	for _, p := range programs {
		for _, s := range p.certs {
			if s.signer != name {
				continue
			}
			if _, err := os.Lstat(s.pair.Cert); err == nil {
				out = append(out, s.pair.Cert)
			}
		}
	}
	return out
}

// ensureProgram writes the trusted CAs and the certificates of a program to its folder. If an
// external CA has to sign a certificate, it writes a signing request and adds it to unsigned.
func (o Options) ensureProgram(program programFolder, signers map[CA]*authority, now time.Time,
	unsigned *UnsignedError) (created []string, err error) {
	layout := Layout{o.Dir}
	for _, ca := range program.trusts {
		if signers[ca].cert == nil {
			continue
		}
		if err := copyFile(layout.CA(ca).Cert, layout.TrustBundle(program.name, ca)); err != nil {
			return created, err
		}
	}
	for _, spec := range program.certs {
		signer := signers[spec.signer]
		if !o.Renew && signer.validCertificate(spec, now) {
			if err := os.Remove(spec.pair.requestPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return created, err
			}
			continue
		}
		if signer.key == nil {
			if err := writeRequest(spec); err != nil {
				return created, err
			}
			unsigned.Requests = append(unsigned.Requests, spec.pair.requestPath())
			continue
		}
		if err := signer.issueCert(spec, now, o.lifetime()); err != nil {
			return created, err
		}
		created = append(created, spec.pair.Cert)
	}
	return created, nil
}

// copyFile copies a file that contains no secrets, unless the copy is equal already.
func copyFile(from, target string) error {
	expected, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(target); err == nil && bytes.Equal(have, expected) {
		return nil
	}
	return tlsfiles.WriteFile(target, expected, 0o644)
}
