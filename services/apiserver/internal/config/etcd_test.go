package config

import (
	"errors"
	"strings"
	"testing"
)

// TestEmbeddedEtcdOptions checks which options of the embedded etcd are valid.
func TestEmbeddedEtcdOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*EmbeddedEtcdOptions)
		external bool
		want     string // "" means valid
	}{
		"defaults":     {change: func(*EmbeddedEtcdOptions) {}},
		"another etcd": {change: func(*EmbeddedEtcdOptions) {}, external: true},
		"a socket":     {change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix:///run/etcd.sock" }},
		"loopback with TLS": {
			change: func(o *EmbeddedEtcdOptions) {
				o.ListenClientURL = "https://127.0.0.1:2379"
				o.CertFile = "c"
				o.KeyFile = "k"
				o.TrustedCAFile = "ca"
			},
		},
		"a small quota": {
			change: func(o *EmbeddedEtcdOptions) { o.QuotaBytes = 1 << 20 },
			want:   "--quota-backend-bytes 1048576 is less than 16777216",
		},
		"no quota": {change: func(o *EmbeddedEtcdOptions) { o.QuotaBytes = 0 }, want: "--quota-backend-bytes 0 is less"},
		"no TLS": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "http://127.0.0.1:2379" },
			want:   "is neither unix:///PATH nor https",
		},
		"a relative socket": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix://etcd.sock" },
			want:   "is neither unix:///PATH nor https",
		},
		"no certificates": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "https://127.0.0.1:2379" },
			want:   "needs --embedded-etcd-cert-file",
		},
		"for others": {
			change: func(o *EmbeddedEtcdOptions) {
				o.ListenClientURL = "https://192.0.2.1:2379"
				o.CertFile = "c"
				o.KeyFile = "k"
				o.TrustedCAFile = "ca"
			},
			want: "is not a loopback address",
		},
		"certificates of a socket": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL, o.CertFile = "unix:///run/etcd.sock", "c" },
			want:   "a socket asks for no certificates",
		},
		"certificates of nothing": {
			change: func(o *EmbeddedEtcdOptions) { o.KeyFile = "k" },
			want:   "need --embedded-etcd-listen-client-url",
		},
		"a listener of another etcd": {
			change:   func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix:///run/etcd.sock" },
			external: true,
			want:     "--etcd-servers names another",
		},
		"no URL": {
			change: func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix://%zz" },
			want:   "--embedded-etcd-listen-client-url: parse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newEmbeddedEtcdOptions()
			test.change(&o)
			err := errors.Join(o.validate(test.external)...)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestParseEtcdOverrides checks the form of --etcd-servers-overrides, and that resources that the
// server itself depends on cannot be moved.
func TestParseEtcdOverrides(t *testing.T) {
	t.Parallel()
	const form = "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
	for _, test := range []struct{ name, value, want string }{
		{name: "events", value: "/events#http://a:2379;http://b:2379"},
		{name: "of a group", value: "apps/deployments#https://a:2379"},
		{name: "a whole group", value: "batch/*#https://a:2379"},
		{name: "no servers", value: "/events", want: form},
		{name: "no group", value: "events#http://a:2379", want: form},
		{name: "three parts", value: "a/b/c#http://a:2379", want: form},
		{name: "servers twice", value: "/events#http://a:2379#http://b:2379", want: form},
		{name: "no URL", value: "/events#a:2379", want: `"a:2379" is not a URL`},
		{name: "an empty server", value: "/events#http://a:2379;", want: `"" is not a URL`},
		{
			name:  "what the server goes by",
			value: "rbac.authorization.k8s.io/roles#http://a:2379",
			want:  "must be stored in --etcd-servers",
		},
		{name: "users", value: "/serviceaccounts#http://a:2379", want: "must be stored in --etcd-servers"},
		{name: "a group with such", value: "storage.k8s.io/*#http://a:2379", want: "must be stored in --etcd-servers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := errors.Join((&EtcdOptions{Overrides: []string{test.value}}).validateOverrides()...)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestEtcdPrefixWithoutNameIsInvalid checks that keys cannot be stored directly below the root.
func TestEtcdPrefixWithoutNameIsInvalid(t *testing.T) {
	for _, prefix := range []string{"", "/", "//"} {
		o := NewOptions()
		o.Etcd.Prefix = prefix
		if err := errors.Join(o.Validate()...); err == nil || !strings.Contains(err.Error(), "--etcd-prefix") {
			t.Errorf("--etcd-prefix=%q: got error %v, want one about the flag", prefix, err)
		}
	}
}
