package etcd

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// TestParseConfigRejectsInvalidFlags checks that parseConfig returns an error that names the cause.
func TestParseConfigRejectsInvalidFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string // part of the error, or "" for no error
	}{
		"no flags": {args: nil, want: ""},
		"listen address without advertise address": {args: []string{"--listen-client-urls=http://127.0.0.1:1"},
			want: "--advertise-client-urls is required"},
		"former name of a flag": {args: []string{"--experimental-corrupt-check-time=1m"},
			want: "--experimental-corrupt-check-time was renamed"},
		"unknown flag":          {args: []string{"--nothing"}, want: "nothing"},
		"argument":              {args: []string{"x"}, want: `"x" is not a flag`},
		"invalid cluster state": {args: []string{"--initial-cluster-state=odd"}, want: "odd"},
		"missing file":          {args: []string{"--config-file=/there/is/none"}, want: "/there/is/none"},
	} {
		_, err := parseConfig(test.args, io.Discard)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: parseConfig(%q) = %v, want an error that contains %q (empty: no error)", name, test.args, err, test.want)
		}
	}
	if _, err := parseConfig([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parseConfig(--help) = %v, want %v", err, flag.ErrHelp)
	}
}

// TestParseConfigAcceptsFlagsOfTestSuites parses the flags with which the end-to-end test suites
// start a member.
func TestParseConfigAcceptsFlagsOfTestSuites(t *testing.T) {
	config, err := parseConfig([]string{
		"--name=etcd-1", "--listen-client-urls=https://127.0.0.1:1", "--advertise-client-urls=https://127.0.0.1:1",
		"--listen-peer-urls=https://127.0.0.1:2", "--initial-advertise-peer-urls=https://127.0.0.1:2",
		"--initial-cluster=etcd-0=https://127.0.0.1:3,etcd-1=https://127.0.0.1:2", "--initial-cluster-token=t",
		"--client-cert-auth", "--trusted-ca-file=ca", "--cert-file=c", "--key-file=k",
		"--peer-client-cert-auth", "--peer-trusted-ca-file=ca", "--peer-cert-file=c", "--peer-key-file=k",
		"--peer-cert-allowed-cn=etcd", "--log-level=warn",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.PeerTLSInfo.AllowedCNs; !slices.Equal(got, []string{"etcd"}) {
		t.Errorf("got allowed common names of peers %q, want [\"etcd\"]", got)
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
	if err := os.WriteFile(path, []byte("name: from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := parseConfig([]string{"--name=from-flag", "--config-file=" + path}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if config.Name != "from-file" {
		t.Errorf("got name %q, want %q", config.Name, "from-file")
	}
}
