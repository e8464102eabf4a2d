package etcd

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// TestInvalidFlagsAreRejected accepts the flags with which suites start members, and rejects invalid ones.
func TestInvalidFlagsAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string // part of the error
	}{
		"a member as suites start it": {[]string{
			"--name=etcd-1", "--listen-client-urls=https://127.0.0.1:1", "--advertise-client-urls=https://127.0.0.1:1",
			"--listen-peer-urls=https://127.0.0.1:2", "--initial-advertise-peer-urls=https://127.0.0.1:2",
			"--initial-cluster=etcd-0=https://127.0.0.1:3,etcd-1=https://127.0.0.1:2", "--initial-cluster-token=t",
			"--client-cert-auth", "--trusted-ca-file=ca", "--cert-file=c", "--key-file=k", "--peer-client-cert-auth", "--peer-trusted-ca-file=ca",
			"--peer-cert-file=c", "--peer-key-file=k", "--peer-cert-allowed-cn=etcd", "--log-level=warn",
		}, ""},
		"nothing": {nil, ""},
		"listen address without advertise address": {[]string{"--listen-client-urls=http://127.0.0.1:1"}, "--advertise-client-urls is required"},
		"former name of a flag":                    {[]string{"--experimental-corrupt-check-time=1m"}, "--experimental-corrupt-check-time was renamed"},
		"an unknown flag":                          {[]string{"--nothing"}, "nothing"},
		"an argument":                              {[]string{"x"}, `"x" is not a flag`},
		"invalid cluster state":                    {[]string{"--initial-cluster-state=odd"}, "odd"},
		"no file":                                  {[]string{"--config-file=/there/is/none"}, "/there/is/none"},
	} {
		config, err := configure(c.args, io.Discard)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if name == "a member as suites start it" && err == nil {
			if len(config.PeerTLSInfo.AllowedCNs) != 1 || types.URLs(config.ListenPeerUrls).String() != "https://127.0.0.1:2" || !config.ClientTLSInfo.ClientCertAuth {
				t.Errorf("%s: got %+v", name, config)
			}
		}
	}
	if _, err := configure([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help: got %v, want error %v", err, flag.ErrHelp)
	}
}

func TestConfigFileReplacesFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.yaml")
	if err := os.WriteFile(path, []byte("name: filed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := configure([]string{"--name=flagged", "--config-file=" + path}, io.Discard)
	if err != nil || c.Name != "filed" {
		t.Errorf("got %v %v, want no error, c.Name = \"filed\"", c, err)
	}
}
