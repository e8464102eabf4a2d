package encryption_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/encryption/kms/kmstest"
)

func pluginAt(endpoint, name string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: '%s', timeout: 5s}", name, endpoint)
}

// TestHealthCheckReportsEachUnhealthyPlugin checks that the health check reports exactly the unhealthy plugins.
func TestHealthCheckReportsEachUnhealthyPlugin(t *testing.T) {
	first := kmstest.New(t)
	second := kmstest.New(t)
	b := newBuilder(t)
	b.Intervals = shortIntervals()
	live := openWith(t, b, rulesYAML(ruleYAML("secrets", pluginAt(first.Endpoint(), "one"), pluginAt(second.Endpoint(), "two"))), false)
	const (
		firstError  = "kms-provider-0: kmsv2 Provider one is not healthy, error: got unexpected healthz status: ill"
		secondError = "kms-provider-1: kmsv2 Provider two is not healthy, error: got unexpected healthz status: ill"
	)
	for _, test := range []struct{ firstHealth, secondHealth, want string }{
		{firstHealth: "ok", secondHealth: "ok"},
		{firstHealth: "ill", secondHealth: "ok", want: firstError},
		{firstHealth: "ok", secondHealth: "ill", want: secondError},
		{firstHealth: "ill", secondHealth: "ill", want: "[" + firstError + ", " + secondError + "]"},
	} {
		first.SetHealth(test.firstHealth)
		second.SetHealth(test.secondHealth)
		got := ""
		awaitTrue(t, fmt.Sprintf("health check result %q", test.want), func() bool {
			if err := live.CheckAll(httptest.NewRequestWithContext(t.Context(), "GET", "/healthz", nil)); err != nil {
				got = err.Error()
			} else {
				got = ""
			}
			return got == test.want
		})
	}
}

// TestErrorOfKeysWithSameNameIsReportedOnce checks that an error that several keys of one name return
// occurs once in the text.
func TestErrorOfKeysWithSameNameIsReportedOnce(t *testing.T) {
	s := newRawStore()
	mustCreate(t, s.storeWith(openConfig(t, rulesYAML(ruleYAML("secrets", keysYAML("aesgcm", key32))))), secretKey, plainValue())
	third := strings.Repeat("A", 43) + "="
	rotated := s.storeWith(openConfig(t,
		rulesYAML(ruleYAML("secrets", "aesgcm: {keys: [{name: k1, secret: "+other32+"}, {name: k1, secret: "+third+"}]}"))))
	if _, _, err := getValue(t, rotated, secretKey); err == nil || err.Error() != "cipher: message authentication failed" {
		t.Errorf("got %v, want one authentication error", err)
	}
}

// TestMaskedRuleErrorQuotesFile checks that the error names the masking rule as written in the file.
func TestMaskedRuleErrorQuotesFile(t *testing.T) {
	for _, test := range []struct{ wide, narrow, want string }{
		{wide: "'*.'", narrow: "secrets", want: `resource "secrets" is masked by earlier rule "*."`},
		{wide: "'*.apps'", narrow: "deployments.apps", want: `resource "deployments.apps" is masked by earlier rule "*.apps"`},
		{wide: "'*.*'", narrow: "secrets", want: `resource "secrets" is masked by earlier rule "*.*"`},
		{wide: "'*.*'", narrow: "'*.'", want: `resource "*." is masked by earlier rule "*.*"`},
	} {
		parsed, err := encryption.Parse("f",
			[]byte(rulesYAML(ruleYAML(test.wide, identityTransformer), ruleYAML(test.narrow, identityTransformer))), false)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newBuilder(t).Build(t.Context(), parsed, func() {})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}
