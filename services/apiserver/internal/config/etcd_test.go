package config

import (
	"errors"
	"strings"
	"testing"
)

// TestInvalidEmbeddedEtcdOptionsAreRejected checks the validation of the options of the embedded etcd.
func TestInvalidEmbeddedEtcdOptionsAreRejected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*EmbeddedEtcdOptions)
		external bool
		want     string // part of the error; empty if the options are valid
	}{
		"defaults":      {change: func(*EmbeddedEtcdOptions) {}},
		"external etcd": {change: func(*EmbeddedEtcdOptions) {}, external: true},
		"socket":        {change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix:///run/etcd.sock" }},
		"loopback with TLS": {
			change: func(o *EmbeddedEtcdOptions) {
				o.ListenClientURL = "https://127.0.0.1:2379"
				o.CertFile = "c"
				o.KeyFile = "k"
				o.TrustedCAFile = "ca"
			},
		},
		"quota below the minimum": {
			change: func(o *EmbeddedEtcdOptions) { o.QuotaBytes = 1 << 20 },
			want:   "--quota-backend-bytes 1048576 is less than 16777216",
		},
		"no quota": {change: func(o *EmbeddedEtcdOptions) { o.QuotaBytes = 0 }, want: "--quota-backend-bytes 0 is less"},
		"URL without TLS": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "http://127.0.0.1:2379" },
			want:   "is neither unix:///PATH nor https",
		},
		"relative socket path": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix://etcd.sock" },
			want:   "is neither unix:///PATH nor https",
		},
		"https without certificates": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "https://127.0.0.1:2379" },
			want:   "needs --embedded-etcd-cert-file",
		},
		"address that is no loopback address": {
			change: func(o *EmbeddedEtcdOptions) {
				o.ListenClientURL = "https://192.0.2.1:2379"
				o.CertFile = "c"
				o.KeyFile = "k"
				o.TrustedCAFile = "ca"
			},
			want: "is not a loopback address",
		},
		"socket with a certificate": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL, o.CertFile = "unix:///run/etcd.sock", "c" },
			want:   "a socket asks for no certificates",
		},
		"certificates without a URL": {
			change: func(o *EmbeddedEtcdOptions) { o.KeyFile = "k" },
			want:   "need --embedded-etcd-listen-client-url",
		},
		"URL with an external etcd": {
			change:   func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix:///run/etcd.sock" },
			external: true,
			want:     "--etcd-servers names another",
		},
		"unparsable URL": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix://%zz" },
			want:   "--embedded-etcd-listen-client-url: parse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcdOptions := newEmbeddedEtcdOptions()
			test.change(&etcdOptions)
			err := errors.Join(etcdOptions.validate(test.external)...)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestInvalidEtcdOverridesAreRejected checks the form of --etcd-servers-overrides, and that resources that the
// server itself depends on cannot be moved.
func TestInvalidEtcdOverridesAreRejected(t *testing.T) {
	t.Parallel()
	const form = "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
	for _, test := range []struct{ name, value, want string }{
		{name: "core resource", value: "/events#http://a:2379;http://b:2379"},
		{name: "resource of a group", value: "apps/deployments#https://a:2379"},
		{name: "whole group", value: "batch/*#https://a:2379"},
		{name: "no servers", value: "/events", want: form},
		{name: "no group", value: "events#http://a:2379", want: form},
		{name: "resource with three parts", value: "a/b/c#http://a:2379", want: form},
		{name: "two lists of servers", value: "/events#http://a:2379#http://b:2379", want: form},
		{name: "server that is no URL", value: "/events#a:2379", want: `"a:2379" is not a URL`},
		{name: "empty server", value: "/events#http://a:2379;", want: `"" is not a URL`},
		{
			name:  "group that authorization needs",
			value: "rbac.authorization.k8s.io/roles#http://a:2379",
			want:  "must be stored in --etcd-servers",
		},
		{name: "resource that authentication needs", value: "/serviceaccounts#http://a:2379", want: "must be stored in --etcd-servers"},
		{name: "group with such a resource", value: "storage.k8s.io/*#http://a:2379", want: "must be stored in --etcd-servers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := errors.Join((&EtcdOptions{Overrides: []string{test.value}}).validateOverrides()...)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// TestEtcdPrefixWithoutNameIsInvalid checks that keys cannot be stored directly below the root.
func TestEtcdPrefixWithoutNameIsInvalid(t *testing.T) {
	for _, prefix := range []string{"", "/", "//"} {
		serverOptions := NewOptions()
		serverOptions.Etcd.Prefix = prefix
		if err := errors.Join(serverOptions.Validate()...); err == nil || !strings.Contains(err.Error(), "--etcd-prefix") {
			t.Errorf("--etcd-prefix=%q: got error %v, want one about the flag", prefix, err)
		}
	}
}
