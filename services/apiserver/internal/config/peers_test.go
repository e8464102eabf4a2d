package config

import (
	"strings"
	"testing"
)

// TestInvalidPeerFlags covers flags that contradict each other.
func TestInvalidPeerFlags(t *testing.T) {
	t.Parallel()
	const gates = "--feature-gates=UnknownVersionInteroperabilityProxy=true,StorageVersionAPI=true"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a CA, no gate": {
			args: []string{"--peer-ca-file=x"},
			want: "--peer-ca-file requires UnknownVersionInteroperabilityProxy feature to be turned on",
		},
		"an address, none": {
			args: []string{"--peer-advertise-ip=10.0.0.1"},
			want: "--peer-advertise-ip requires UnknownVersionInteroperabilityProxy feature to be turned on",
		},
		"a port, none": {
			args: []string{"--peer-advertise-port=1"},
			want: "--peer-advertise-port requires UnknownVersionInteroperabilityProxy feature to be turned on",
		},
		"no proof": {
			args: []string{gates, "--peer-ca-file=x"},
			want: "--peer-ca-file needs --proxy-client-cert-file and --proxy-client-key-file",
		},
		"no address": {
			args: []string{gates, "--peer-advertise-ip=here"},
			want: `--peer-advertise-ip "here" is not an address`,
		},
		"any address": {
			args: []string{gates, "--peer-advertise-ip=0.0.0.0"},
			want: `--peer-advertise-ip "0.0.0.0" is not an address`,
		},
		"no port": {args: []string{gates, "--peer-advertise-port=0"}, want: `--peer-advertise-port "0" is not a port`},
		"more than all ports": {
			args: []string{gates, "--peer-advertise-port=70000"},
			want: `--peer-advertise-port "70000" is not a port`,
		},
	} {
		if code, _, errs := asProgram(t, test.args...); code == 0 || !strings.Contains(errs, test.want) {
			t.Errorf("%s: %q exits with %d, %s, want an error with %q", name, test.args, code, errs, test.want)
		}
	}
}
