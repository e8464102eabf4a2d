package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"binnacle/libs/satoken"
)

// A token that lives in a secret: its use is noted in the secret, once a day, and
// a mark in the secret withdraws it.
func TestLegacyTokens(t *testing.T) {
	file := signingKey(t)
	key, err := satoken.LoadPrivateKey(file)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	a := start(t, func(o *Options) {
		issuing(file)(o)
		o.Audit.PolicyFile, o.Audit.Log.Path = filepath.Join(t.TempDir(), "policy.yaml"), log
		replaceFile(t, o.Audit.PolicyFile, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	})
	b := a.bearer()
	sa := a.want(http.StatusCreated, http.MethodPost, accounts, object("ServiceAccount", "sa", ""))
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, satoken.Claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: satoken.LegacyIssuer, Subject: "system:serviceaccount:default:sa"},
		LegacyNamespace:  "default", LegacySecretName: "home", LegacyName: "sa", LegacyUID: fmt.Sprint(sa.at("metadata", "uid")),
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	const secrets = "/api/v1/namespaces/default/secrets"
	if r := b.whoami(token); r.code != http.StatusUnauthorized {
		t.Fatalf("without its secret: %d", r.code)
	}
	a.want(http.StatusCreated, http.MethodPost, secrets, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token",
"metadata":{"name":"home","annotations":{"kubernetes.io/service-account.name":"sa"}},"stringData":{"token":%s}}`, quoted))
	a.eventually("known", func() bool { return b.whoami(token).code == http.StatusCreated })
	label := func() any {
		return a.get(secrets+"/home").at("metadata", "labels", satoken.LastUsed)
	}
	before := time.Now().UTC().Format(time.DateOnly)
	a.eventually("noted", func() bool { return label() != nil })
	if today := time.Now().UTC().Format(time.DateOnly); label() != today && label() != before {
		t.Errorf("used last on %v, today is %s", label(), today)
	}
	noted := a.get(secrets + "/home").version()
	a.eventually("known again", func() bool { return b.whoami(token).code == http.StatusCreated })
	if now := a.get(secrets + "/home").version(); now != noted {
		t.Errorf("the second use changes the secret: version %s after %s", now, noted)
	}
	a.want(http.StatusOK, http.MethodPatch, secrets+"/home", `{"metadata":{"labels":{"`+satoken.InvalidSince+`":"2025-01-01"}}}`, "Content-Type", mergePatch)
	a.eventually("withdrawn", func() bool { return b.whoami(token).code == http.StatusUnauthorized })
	b.whoami(token)
	told, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"authentication.k8s.io/legacy-token":"system:serviceaccount:default:sa"`, `"authentication.k8s.io/legacy-token-manual-secret":"home"`,
		`"authentication.k8s.io/legacy-token-invalidated":"home/default"`} {
		if n := strings.Count(string(told), want); n < 2 { // of a review that is kept, too
			t.Errorf("%s is told %d times", want, n)
		}
	}
	metrics := string(a.get("/metrics").body)
	for _, want := range []string{"serviceaccount_legacy_manual_token_uses_total ", "serviceaccount_legacy_auto_token_uses_total 0", "serviceaccount_invalid_legacy_auto_token_uses_total 1"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no metric %q", want)
		}
	}
}
