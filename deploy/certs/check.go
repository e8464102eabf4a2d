package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"binnacle/libs/serving/tlsfiles"
)

// Entry is the state of one certificate.
type Entry struct {
	// Path is the certificate file, relative to the folder of Options.
	Path string
	// Subject, Use and Issuer describe the certificate. They are empty if it cannot be
	// read. Use is "CA", "server", "client" or "server,client".
	Subject, Use, Issuer string
	// Expires is the end of the validity; zero if the certificate cannot be read.
	Expires time.Time
	// Problem says what is wrong; it is empty for a valid certificate.
	Problem string
}

// Check returns the state of every certificate of the suite, the CAs first. A
// certificate that expires before now+within has a problem. Keys of CAs may be absent.
// Check changes nothing.
func Check(options Options, now time.Time, within time.Duration) []Entry {
	layout := Layout{options.Dir}
	var out []Entry
	add := func(path string, verify func(*x509.Certificate) error) {
		out = append(out, options.checkFile(path, now, within, verify))
	}
	for _, ca := range CAs() {
		add(options.authorityFile(ca), func(c *x509.Certificate) error {
			if !c.IsCA {
				return errors.New("not a CA certificate")
			}
			return nil
		})
		if _, err := os.Stat(layout.NextCA(ca).Cert); err == nil {
			add(layout.NextCA(ca).Cert, func(*x509.Certificate) error { return nil })
		}
	}
	for _, p := range options.programs() {
		for _, s := range p.certs {
			add(s.pair.Cert, func(c *x509.Certificate) error { return options.verifyCert(s, c, now) })
		}
	}
	return out
}

// authorityFile returns a file with the certificates of a CA: that of the folder ca, or
// the copy of a program if the folder is kept elsewhere.
func (o Options) authorityFile(ca CA) string {
	layout := Layout{o.Dir}
	own := layout.CA(ca).Cert
	if _, err := os.Stat(own); err == nil {
		return own
	}
	for _, p := range Programs() {
		if _, err := os.Stat(layout.TrustBundle(p, ca)); err == nil {
			return layout.TrustBundle(p, ca)
		}
	}
	return own
}

// checkFile returns the state of a certificate file. verify checks its use and its issuer.
func (o Options) checkFile(path string, now time.Time, within time.Duration, verify func(*x509.Certificate) error) Entry {
	entry := Entry{Path: path}
	if relative, err := filepath.Rel(o.Dir, path); err == nil {
		entry.Path = relative
	}
	certificate, err := readCertificate(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("missing")
	}
	if err != nil {
		entry.Problem = err.Error()
		return entry
	}
	entry.Subject, entry.Issuer, entry.Expires, entry.Use = certificate.Subject.CommonName, certificate.Issuer.CommonName, certificate.NotAfter, describeUsage(certificate)
	switch err := verify(certificate); {
	case now.After(certificate.NotAfter):
		entry.Problem = "expired"
	case err != nil:
		entry.Problem = err.Error()
	case now.Add(within).After(certificate.NotAfter):
		entry.Problem = "expires soon"
	}
	return entry
}

// describeUsage returns what a certificate may be used for, for the table.
func describeUsage(certificate *x509.Certificate) string {
	if certificate.IsCA {
		return "CA"
	}
	var out []string
	for _, u := range certificate.ExtKeyUsage {
		switch u {
		case x509.ExtKeyUsageServerAuth:
			out = append(out, "server")
		case x509.ExtKeyUsageClientAuth:
			out = append(out, "client")
		}
	}
	return strings.Join(out, ",")
}

// verifyCert returns an error if a certificate has another subject, usage or name than s,
// another key, or another CA.
func (o Options) verifyCert(spec certSpec, certificate *x509.Certificate, now time.Time) error {
	if _, err := tlsfiles.LoadPair(spec.pair.Cert, spec.pair.Key); err != nil {
		return err
	}
	bundle, err := tlsfiles.LoadBundle(o.authorityFile(spec.signer))
	if err != nil {
		return fmt.Errorf("the CA cannot be read: %w", err)
	}
	_, err = certificate.Verify(x509.VerifyOptions{
		Roots:       bundle.Pool(),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		CurrentTime: now,
	})
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("not signed by %s", spec.signer)
	case err != nil:
		return err
	case !spec.matchesCert(certificate):
		return errors.New("subject, usage or names differ from the wanted ones")
	}
	return nil
}
