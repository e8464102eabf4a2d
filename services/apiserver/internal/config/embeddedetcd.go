package config

import (
	"fmt"
	"net"
	"net/url"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/storage/etcd/embedded"
)

// MinQuota is the smallest valid quota of the embedded etcd, in bytes.
const MinQuota = 16 << 20

// EmbeddedEtcdOptions configure the embedded etcd.
type EmbeddedEtcdOptions struct {
	QuotaBytes                       int64
	ListenClientURL                  string
	CertFile, KeyFile, TrustedCAFile string
}

func newEmbeddedEtcdOptions() EmbeddedEtcdOptions {
	return EmbeddedEtcdOptions{QuotaBytes: embedded.DefaultQuota}
}

func (o *EmbeddedEtcdOptions) addFlags(s *options.Sections) {
	f := s.Set("etcd")
	f.Int64Var(&o.QuotaBytes, "quota-backend-bytes", o.QuotaBytes, "Size in bytes of the database of the embedded etcd. Above it, writes other than deletions are rejected.")
	f.StringVar(&o.ListenClientURL, "embedded-etcd-listen-client-url", "", "URL at which the embedded etcd serves tools on this machine: unix:///PATH, for the user of the server only, or https://127.0.0.1:PORT, with client certificates. If empty, it serves no clients.")
	f.StringVar(&o.CertFile, "embedded-etcd-cert-file", "", "Serving certificate of --embedded-etcd-listen-client-url with https.")
	f.StringVar(&o.KeyFile, "embedded-etcd-key-file", "", "Key of --embedded-etcd-cert-file.")
	f.StringVar(&o.TrustedCAFile, "embedded-etcd-trusted-ca-file", "", "CA bundle that verifies client certificates at --embedded-etcd-listen-client-url with https.")
}

// validate returns all errors. external reports whether --etcd-servers is set.
func (o *EmbeddedEtcdOptions) validate(external bool) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if external {
		if o.ListenClientURL != "" {
			bad("--embedded-etcd-listen-client-url is of the etcd in this process, and --etcd-servers names another")
		}
		return errs
	}
	if o.QuotaBytes < MinQuota {
		bad("--quota-backend-bytes %d is less than %d", o.QuotaBytes, MinQuota)
	}
	certificates := o.CertFile != "" || o.KeyFile != "" || o.TrustedCAFile != ""
	if o.ListenClientURL == "" {
		if certificates {
			bad("--embedded-etcd-cert-file, --embedded-etcd-key-file and --embedded-etcd-trusted-ca-file need --embedded-etcd-listen-client-url")
		}
		return errs
	}
	u, err := url.Parse(o.ListenClientURL)
	switch {
	case err != nil:
		bad("--embedded-etcd-listen-client-url: %w", err)
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		if certificates {
			bad("--embedded-etcd-listen-client-url %q: a socket asks for no certificates", o.ListenClientURL)
		}
	case u.Scheme == "https" && u.Path == "" && u.Port() != "":
		if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
			bad("--embedded-etcd-listen-client-url %q: %q is not a loopback address", o.ListenClientURL, u.Hostname())
		}
		if o.CertFile == "" || o.KeyFile == "" || o.TrustedCAFile == "" {
			bad("--embedded-etcd-listen-client-url %q needs --embedded-etcd-cert-file, --embedded-etcd-key-file and --embedded-etcd-trusted-ca-file", o.ListenClientURL)
		}
	default:
		bad("--embedded-etcd-listen-client-url %q is neither unix:///PATH nor https://ADDRESS:PORT", o.ListenClientURL)
	}
	return errs
}
