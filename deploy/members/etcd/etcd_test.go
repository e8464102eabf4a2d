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

// TestConfigureChecksFlags checks that configure rejects invalid flags with an error that names the
// cause.
func TestConfigureChecksFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string // part of the error, or "" for no error
	}{
		"nothing": {args: nil, want: ""},
		"listen address without advertise address": {args: []string{"--listen-client-urls=http://127.0.0.1:1"}, want: "--advertise-client-urls is required"},
		"former name of a flag":                    {args: []string{"--experimental-corrupt-check-time=1m"}, want: "--experimental-corrupt-check-time was renamed"},
		"an unknown flag":                          {args: []string{"--nothing"}, want: "nothing"},
		"an argument":                              {args: []string{"x"}, want: `"x" is not a flag`},
		"invalid cluster state":                    {args: []string{"--initial-cluster-state=odd"}, want: "odd"},
		"no file":                                  {args: []string{"--config-file=/there/is/none"}, want: "/there/is/none"},
	} {
		_, err := parseConfig(c.args, io.Discard)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: configure = %v, want an error with %q (empty: no error)", name, err, c.want)
		}
	}
	if _, err := parseConfig([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("configure(--help) = %v, want %v", err, flag.ErrHelp)
	}
}

// TestConfigureAcceptsFlagsOfSuites passes the flags with which the test suites start a member.
func TestConfigureAcceptsFlagsOfSuites(t *testing.T) {
	config, err := parseConfig([]string{
		"--name=etcd-1", "--listen-client-urls=https://127.0.0.1:1", "--advertise-client-urls=https://127.0.0.1:1",
		"--listen-peer-urls=https://127.0.0.1:2", "--initial-advertise-peer-urls=https://127.0.0.1:2",
		"--initial-cluster=etcd-0=https://127.0.0.1:3,etcd-1=https://127.0.0.1:2", "--initial-cluster-token=t",
		"--client-cert-auth", "--trusted-ca-file=ca", "--cert-file=c", "--key-file=k", "--peer-client-cert-auth", "--peer-trusted-ca-file=ca",
		"--peer-cert-file=c", "--peer-key-file=k", "--peer-cert-allowed-cn=etcd", "--log-level=warn",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.PeerTLSInfo.AllowedCNs; len(got) != 1 {
		t.Errorf("got allowed common names of peers %q, want one name", got)
	}
	if got, want := types.URLs(config.ListenPeerUrls).String(), "https://127.0.0.1:2"; got != want {
		t.Errorf("got peer URLs %s, want %s", got, want)
	}
	if !config.ClientTLSInfo.ClientCertAuth {
		t.Error("got ClientCertAuth = false, want true")
	}
}

// TestConfigFileReplacesFlags checks that --config-file takes precedence over other flags, as in
// etcd.
func TestConfigFileReplacesFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.yaml")
	if err := os.WriteFile(path, []byte("name: filed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig([]string{"--name=flagged", "--config-file=" + path}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "filed" {
		t.Errorf("got name %q, want %q", c.Name, "filed")
	}
}
