package bootstrap

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// AuthenticationConfigName is the config map, in the system namespace, that extension servers read.
const AuthenticationConfigName = "extension-apiserver-authentication"

// authenticationConfigEvery is the interval of checks for expired certificates. Changes of the
// config map and of its sources are signaled (Config.AuthenticationConfigDue).
const authenticationConfigEvery = time.Minute

// authenticationConfig publishes the data that extension servers need to authenticate clients that
// come through this server. Replicas may have different data while certificates are replaced, so
// existing data stays as long as it is valid: bundles are merged until certificates expire, and
// lists are merged too.
func (b *Bootstrap) authenticationConfig(ctx context.Context) error {
	data := b.AuthenticationConfig()
	if len(data) == 0 {
		return nil
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: AuthenticationConfigName, Namespace: api.SystemNamespace}, Data: data}
	return internalclient.Put(ctx, b.API, internalclient.Collection("", "v1", "configmaps", api.SystemNamespace), cm, func(live *corev1.ConfigMap) bool {
		changed := false
		for k, mine := range data {
			if joined := b.join(k, live.Data[k], mine); live.Data[k] != joined {
				if live.Data == nil {
					live.Data = map[string]string{}
				}
				live.Data[k], changed = joined, true
			}
		}
		return changed
	})
}

// join merges the stored value of a key with that of this server. It replaces invalid values.
func (b *Bootstrap) join(key, have, mine string) string {
	switch {
	case have == mine:
		return have
	case strings.HasSuffix(key, "client-ca-file"):
		return joinBundles(have, mine, b.Now())
	}
	var theirs, ours []string
	if json.Unmarshal([]byte(have), &theirs) != nil || json.Unmarshal([]byte(mine), &ours) != nil {
		return mine
	}
	// An empty list allows all names; the stored one is narrower.
	if key == "requestheader-allowed-names" && len(ours) == 0 {
		return have
	}
	joined := slices.Clone(theirs)
	for _, s := range ours {
		if !slices.Contains(joined, s) {
			joined = append(joined, s)
		}
	}
	if len(joined) == len(theirs) {
		return have
	}
	out, err := json.Marshal(joined)
	if err != nil {
		return mine
	}
	return string(out)
}

// joinBundles returns the certificates of both bundles that have not expired.
func joinBundles(have, mine string, now time.Time) string {
	theirs, ok := bundle(have)
	if !ok {
		return mine
	}
	ours, ok := bundle(mine)
	if !ok {
		return have
	}
	var out strings.Builder
	seen := map[string]bool{}
	kept := 0
	for _, c := range append(slices.Clone(theirs), ours...) {
		if seen[string(c.Raw)] || now.After(c.NotAfter) {
			continue
		}
		seen[string(c.Raw)] = true
		kept++
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // writes to a builder cannot fail
	}
	if kept == len(theirs) && !slices.ContainsFunc(theirs, func(c *x509.Certificate) bool { return !seen[string(c.Raw)] }) {
		return have // preserves comments
	}
	return out.String()
}

// bundle parses certificates. ok is false if the text has any other PEM block or no certificate.
func bundle(text string) (out []*x509.Certificate, ok bool) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out, len(out) > 0
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, false
		}
		out = append(out, c)
	}
}
