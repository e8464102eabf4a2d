package build

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestEmbeddedEtcdOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*EmbeddedEtcdOptions)
		external bool
		want     string // "" means valid
	}{
		"defaults":     {func(*EmbeddedEtcdOptions) {}, false, ""},
		"another etcd": {func(*EmbeddedEtcdOptions) {}, true, ""},
		"a socket":     {func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix:///run/etcd.sock" }, false, ""},
		"loopback with TLS": {func(o *EmbeddedEtcdOptions) {
			o.ListenClientURL = "https://127.0.0.1:2379"
			o.CertFile, o.KeyFile, o.TrustedCAFile = "c", "k", "ca"
		}, false, ""},
		"a small quota":     {func(o *EmbeddedEtcdOptions) { o.QuotaBytes = 1 << 20 }, false, "--quota-backend-bytes 1048576 is less than 16777216"},
		"no quota":          {func(o *EmbeddedEtcdOptions) { o.QuotaBytes = 0 }, false, "--quota-backend-bytes 0 is less"},
		"no TLS":            {func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "http://127.0.0.1:2379" }, false, "is neither unix:///PATH nor https"},
		"a relative socket": {func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix://etcd.sock" }, false, "is neither unix:///PATH nor https"},
		"no certificates":   {func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "https://127.0.0.1:2379" }, false, "needs --embedded-etcd-cert-file"},
		"for others": {func(o *EmbeddedEtcdOptions) {
			o.ListenClientURL = "https://192.0.2.1:2379"
			o.CertFile, o.KeyFile, o.TrustedCAFile = "c", "k", "ca"
		}, false, "is not a loopback address"},
		"certificates of a socket":   {func(o *EmbeddedEtcdOptions) { o.ListenClientURL, o.CertFile = "unix:///run/etcd.sock", "c" }, false, "a socket asks for no certificates"},
		"certificates of nothing":    {func(o *EmbeddedEtcdOptions) { o.KeyFile = "k" }, false, "need --embedded-etcd-listen-client-url"},
		"a listener of another etcd": {func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix:///run/etcd.sock" }, true, "--etcd-servers names another"},
		"no URL":                     {func(o *EmbeddedEtcdOptions) { o.ListenClientURL = "unix://%zz" }, false, "--embedded-etcd-listen-client-url: parse"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newEmbeddedEtcdOptions()
			c.change(&o)
			err := errors.Join(o.validate(c.external)...)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestFullDatabase checks that clients get a clear error, and may delete.
func TestFullDatabase(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	a := start(t, func(o *Options) {
		onEtcd(t)(o)
		o.Etcd.Embedded.QuotaBytes = MinQuota
	})
	for i := range 40 {
		r := a.send("POST", configMaps, configMap(fmt.Sprint("c", i), "k", strings.Repeat("v", 900_000)))
		if r.code == 201 {
			continue
		}
		if r.code != 500 || !strings.HasSuffix(fmt.Sprint(r.at("message")), "etcdserver: mvcc: database space exceeded") {
			t.Errorf("%d %s", r.code, r.body)
		}
		a.want(200, "DELETE", configMaps+"/c0", "")
		if m := a.get("/metrics"); !strings.Contains(string(m.body), "binnacle_embedded_etcd_full 1") {
			t.Error("the metric does not say that it is full")
		}
		return
	}
	t.Error("the quota does not hold")
}
