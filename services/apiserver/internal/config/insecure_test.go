package config

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestUnusableConfigurationIsLogged checks that one warning names all flags that leave the server
// open, or without which no user can authenticate.
func TestUnusableConfigurationIsLogged(t *testing.T) {
	t.Parallel()
	const everything, interfaces, noLogin = "--authorization-mode=Node,RBAC", "--bind-address", "--client-ca-file"
	for _, test := range []struct {
		mode, tokens string
		address      net.IP
		want         []string // flags that the warning names; no warning if empty
	}{
		{mode: "AlwaysAllow", address: net.IPv4zero, want: []string{everything, interfaces, noLogin}},
		{mode: "AlwaysAllow", tokens: "tokens.csv", address: net.IPv4(127, 0, 0, 1), want: []string{everything}},
		{mode: "RBAC", address: net.IPv4zero, want: []string{noLogin}},
		{mode: "RBAC", tokens: "tokens.csv", address: net.IPv4zero},
	} {
		serverOptions := NewOptions()
		serverOptions.Authorization.Modes = []string{test.mode}
		serverOptions.Authentication.TokenFile = test.tokens
		serverOptions.Serving.BindAddress = test.address
		var log bytes.Buffer
		serverOptions.WarnInsecure(slog.New(slog.NewTextHandler(&log, nil)))
		if n := strings.Count(log.String(), "level=WARN"); n > 1 || n == 0 != (len(test.want) == 0) {
			t.Errorf("%+v: got %d warnings, want one that names %q:\n%s", test, n, test.want, log.String())
		}
		for _, flag := range []string{everything, interfaces, noLogin} {
			want := strings.Contains(strings.Join(test.want, " ")+" ", flag+" ")
			if got := strings.Contains(log.String(), flag); got != want {
				t.Errorf("%+v: warning names %s: got %v, want %v:\n%s", test, flag, got, want, log.String())
			}
		}
	}
}
