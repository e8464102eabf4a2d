package bootstrap

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"binnacle/libs/api"
	"binnacle/libs/filewatch"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/security/authn"
)

// AuthenticationConfigName is the name of the config map in the system namespace from which
// extension servers read how to authenticate clients.
const AuthenticationConfigName = "extension-apiserver-authentication"

// authenticationConfigEvery is the interval at which the config map is checked for expired
// certificates. Changes of the config map and of its sources trigger a check earlier; see
// Config.AuthenticationConfigDue.
const authenticationConfigEvery = time.Minute

// writeAuthenticationConfig writes the config map from which extension servers read how to
// authenticate clients that come through this server. While certificates are replaced, replicas may
// have different data. Each replica therefore adds its data to the stored data instead of replacing
// it, and removes only expired certificates.
func (b *Bootstrap) writeAuthenticationConfig(ctx context.Context) error {
	data := b.AuthenticationConfig()
	if len(data) == 0 {
		return nil
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: AuthenticationConfigName, Namespace: api.SystemNamespace},
		Data:       data,
	}
	return internalclient.Put(
		ctx,
		b.API,
		internalclient.Collection("", "v1", "configmaps", api.SystemNamespace),
		configMap,
		func(live *corev1.ConfigMap) bool {
			changed := false
			for key, own := range data {
				if merged := b.mergeValue(key, live.Data[key], own); live.Data[key] != merged {
					if live.Data == nil {
						live.Data = map[string]string{}
					}
					live.Data[key] = merged
					changed = true
				}
			}
			return changed
		},
	)
}

// mergeValue merges the stored value of a key with this server's own value. A stored value that is
// invalid is replaced.
func (b *Bootstrap) mergeValue(key, stored, own string) string {
	switch {
	case stored == own:
		return stored
	case strings.HasSuffix(key, "client-ca-file"):
		return mergeBundles(stored, own, b.Now())
	}
	var storedList, ownList []string
	if json.Unmarshal([]byte(stored), &storedList) != nil || json.Unmarshal([]byte(own), &ownList) != nil {
		return own
	}
	// An empty list allows all names. The stored list may be narrower, so it stays.
	if key == "requestheader-allowed-names" && len(ownList) == 0 {
		return stored
	}
	merged := slices.Clone(storedList)
	for _, s := range ownList {
		if !slices.Contains(merged, s) {
			merged = append(merged, s)
		}
	}
	if len(merged) == len(storedList) {
		return stored
	}
	out, err := json.Marshal(merged)
	if err != nil {
		return own
	}
	return string(out)
}

// mergeBundles returns a PEM bundle of the certificates in both bundles that have not expired. It
// returns stored unchanged if it already contains exactly these. If one bundle is invalid, it
// returns the other.
func mergeBundles(stored, own string, now time.Time) string {
	storedCerts, ok := parseBundle(stored)
	if !ok {
		return own
	}
	ownCerts, ok := parseBundle(own)
	if !ok {
		return stored
	}
	var out strings.Builder
	seen := map[string]bool{}
	count := 0
	for _, cert := range append(slices.Clone(storedCerts), ownCerts...) {
		if seen[string(cert.Raw)] || now.After(cert.NotAfter) {
			continue
		}
		seen[string(cert.Raw)] = true
		count++
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}) // writes to a builder cannot fail
	}
	if count == len(storedCerts) &&
		!slices.ContainsFunc(storedCerts, func(cert *x509.Certificate) bool { return !seen[string(cert.Raw)] }) {
		return stored // including its comments
	}
	return out.String()
}

// parseBundle parses a PEM bundle. ok is false if it contains no certificate, or another kind of
// PEM block.
func parseBundle(text string) (out []*x509.Certificate, ok bool) {
	remaining := []byte(text)
	for {
		var block *pem.Block
		block, remaining = pem.Decode(remaining)
		if block == nil {
			return out, len(out) > 0
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, false
		}
		out = append(out, certificate)
	}
}

// ExtensionInfo holds the sources of the config map that extension servers read, and reports when
// they change. It is safe for concurrent use.
type ExtensionInfo struct {
	ClientCAs *tlsfiles.Bundle // nil if there are none
	ProxyCAs  *tlsfiles.Bundle // nil if there are no authenticating proxies
	// ProxyNames are the common names in the certificates of authenticating proxies; empty allows
	// all names.
	ProxyNames []string
	// ProxyHeaders are the headers in which authenticating proxies send the user.
	ProxyHeaders authn.ProxyHeaders
	Logger       *slog.Logger

	changes chan struct{}
}

// NewExtensionInfo returns a copy of e that is ready to use.
func NewExtensionInfo(e ExtensionInfo) *ExtensionInfo {
	e.changes = make(chan struct{}, 1)
	return &e
}

// Changes returns a channel that receives a value when the config map may have to change.
func (e *ExtensionInfo) Changes() <-chan struct{} { return e.changes }

// FollowObject sends a value to Changes after each change of the config map, until ctx is canceled.
func (e *ExtensionInfo) FollowObject(ctx context.Context, configMaps *watchcache.Store) error {
	object := objects.Selection{Namespace: metav1.NamespaceSystem, Name: AuthenticationConfigName}
	return informer.Follow(ctx, configMaps, object, func([]watchcache.Event) { e.notify() })
}

// bundles returns the CA bundles that are not nil.
func (e *ExtensionInfo) bundles() []*tlsfiles.Bundle {
	return slices.DeleteFunc([]*tlsfiles.Bundle{e.ClientCAs, e.ProxyCAs}, func(b *tlsfiles.Bundle) bool { return b == nil })
}

// FollowFiles reloads the CA bundles when their files change, and then sends a value to Changes,
// until ctx is canceled. If there are no files, it returns immediately.
func (e *ExtensionInfo) FollowFiles(ctx context.Context) error {
	var files []string
	for _, b := range e.bundles() {
		files = append(files, b.Files()...)
	}
	if len(files) == 0 {
		return nil
	}
	return filewatch.Watch(ctx, e.Logger, files, func(context.Context) {
		for _, b := range e.bundles() { // packages that use the bundles log errors
			if changed, err := b.Reload(); err == nil && changed {
				e.Logger.Info("certificate files reloaded", "files", b.Files())
			}
		}
		e.notify()
	})
}

// notify sends a value to the channel of Changes.
func (e *ExtensionInfo) notify() {
	select {
	case e.changes <- struct{}{}:
	default: // a notification is pending
	}
}

// Data returns the data of the config map.
func (e *ExtensionInfo) Data() map[string]string {
	data := map[string]string{}
	if e.ProxyCAs != nil {
		data["requestheader-client-ca-file"] = string(e.ProxyCAs.PEM())
		data["requestheader-allowed-names"] = jsonList(sets.List(sets.New(e.ProxyNames...)))
		data["requestheader-username-headers"] = jsonList(e.ProxyHeaders.Username)
		if len(e.ProxyHeaders.UID) > 0 { // kube-apiserver omits this entry if it is empty
			data["requestheader-uid-headers"] = jsonList(e.ProxyHeaders.UID)
		}
		data["requestheader-group-headers"] = jsonList(e.ProxyHeaders.Group)
		data["requestheader-extra-headers-prefix"] = jsonList(e.ProxyHeaders.ExtraPrefix)
	}
	if e.ClientCAs != nil {
		data["client-ca-file"] = string(e.ClientCAs.PEM()) // the CAs in use, even if the file has changed
	}
	return data
}

// jsonList returns a list as JSON. It returns "[]" for nil.
func jsonList(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	data, err := json.Marshal(list)
	if err != nil { // cannot happen for strings
		return "[]"
	}
	return string(data)
}
