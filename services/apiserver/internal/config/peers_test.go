package config

import (
	"strings"
	"testing"
)

// TestInvalidPeerFlagsAreRejected checks that invalid and contradictory flags for peers are errors.
func TestInvalidPeerFlagsAreRejected(t *testing.T) {
	t.Parallel()
	const gates = "--feature-gates=UnknownVersionInteroperabilityProxy=true,StorageVersionAPI=true"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"CA without the gate": {
			args: []string{"--peer-ca-file=x"},
			want: "--peer-ca-file requires UnknownVersionInteroperabilityProxy feature to be turned on",
		},
		"address without the gate": {
			args: []string{"--peer-advertise-ip=10.0.0.1"},
			want: "--peer-advertise-ip requires UnknownVersionInteroperabilityProxy feature to be turned on",
		},
		"port without the gate": {
			args: []string{"--peer-advertise-port=1"},
			want: "--peer-advertise-port requires UnknownVersionInteroperabilityProxy feature to be turned on",
		},
		"CA without a client certificate": {
			args: []string{gates, "--peer-ca-file=x"},
			want: "--peer-ca-file needs --proxy-client-cert-file and --proxy-client-key-file",
		},
		"address that is no IP": {
			args: []string{gates, "--peer-advertise-ip=here"},
			want: `--peer-advertise-ip "here" is not an address`,
		},
		"unspecified address": {
			args: []string{gates, "--peer-advertise-ip=0.0.0.0"},
			want: `--peer-advertise-ip "0.0.0.0" is not an address`,
		},
		"port 0": {args: []string{gates, "--peer-advertise-port=0"}, want: `--peer-advertise-port "0" is not a port`},
		"port beyond 65535": {
			args: []string{gates, "--peer-advertise-port=70000"},
			want: `--peer-advertise-port "70000" is not a port`,
		},
	} {
		if code, _, errs := asProgram(t, test.args...); code == 0 || !strings.Contains(errs, test.want) {
			t.Errorf("%s: %q exits with %d, %s, want an error with %q", name, test.args, code, errs, test.want)
		}
	}
}
