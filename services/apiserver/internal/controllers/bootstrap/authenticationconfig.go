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

// AuthenticationConfigName is the config map, in the system namespace, that extension servers read.
const AuthenticationConfigName = "extension-apiserver-authentication"

// authenticationConfigEvery is the interval of checks for expired certificates. Changes of the
// config map and of its sources are signaled (Config.AuthenticationConfigDue).
const authenticationConfigEvery = time.Minute

// authenticationConfig publishes the data that extension servers need to authenticate clients that
// come through this server. Replicas may have different data while certificates are replaced. Lists
// are therefore merged with the stored ones, and bundles with stored certificates that have not
// expired.
func (b *Bootstrap) authenticationConfig(ctx context.Context) error {
	data := b.AuthenticationConfig()
	if len(data) == 0 {
		return nil
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: AuthenticationConfigName, Namespace: api.SystemNamespace}, Data: data}
	return internalclient.Put(ctx, b.API, internalclient.Collection("", "v1", "configmaps", api.SystemNamespace), configMap, func(live *corev1.ConfigMap) bool {
		changed := false
		for k, own := range data {
			if merged := b.mergeValue(k, live.Data[k], own); live.Data[k] != merged {
				if live.Data == nil {
					live.Data = map[string]string{}
				}
				live.Data[k], changed = merged, true
			}
		}
		return changed
	})
}

// mergeValue merges the stored value of a key with that of this server. It replaces invalid values.
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
	// An empty list allows all names; the stored one is narrower.
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

// mergeBundles returns the certificates of both bundles that have not expired.
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
	if count == len(storedCerts) && !slices.ContainsFunc(storedCerts, func(cert *x509.Certificate) bool { return !seen[string(cert.Raw)] }) {
		return stored // preserves comments
	}
	return out.String()
}

// parseBundle parses certificates. ok is false if the text has any other PEM block or no
// certificate.
func parseBundle(text string) (out []*x509.Certificate, ok bool) {
	rest := []byte(text)
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return out, len(out) > 0
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, false
		}
		out = append(out, c)
	}
}

// ExtensionInfo is the data of the config map that extension servers read.
type ExtensionInfo struct {
	ClientCAs *tlsfiles.Bundle // nil if there are none
	ProxyCAs  *tlsfiles.Bundle // nil if there are no authenticating proxies
	// ProxyNames are the names in the certificates of authenticating proxies. ProxyHeaders are the
	// headers that they set.
	ProxyNames   []string
	ProxyHeaders authn.ProxyHeaders
	Logger       *slog.Logger

	changes chan struct{}
}

// NewExtensionInfo initializes the channel of Changes and returns a copy of e.
func NewExtensionInfo(e ExtensionInfo) *ExtensionInfo {
	e.changes = make(chan struct{}, 1)
	return &e
}

// Changes returns a channel that receives a value when the config map may have to change.
func (e *ExtensionInfo) Changes() <-chan struct{} { return e.changes }

// FollowObject follows the config map until ctx ends.
func (e *ExtensionInfo) FollowObject(ctx context.Context, configMaps *watchcache.Store) error {
	object := objects.Selection{Namespace: metav1.NamespaceSystem, Name: AuthenticationConfigName}
	return informer.Follow(ctx, configMaps, object, func([]watchcache.Event) { e.notify() })
}

// bundles returns the files with CAs.
func (e *ExtensionInfo) bundles() []*tlsfiles.Bundle {
	return slices.DeleteFunc([]*tlsfiles.Bundle{e.ClientCAs, e.ProxyCAs}, func(b *tlsfiles.Bundle) bool { return b == nil })
}

// FollowFiles follows the files with CAs until ctx ends. It returns immediately if there are none.
func (e *ExtensionInfo) FollowFiles(ctx context.Context) error {
	var files []string
	for _, b := range e.bundles() {
		files = append(files, b.Files()...)
	}
	if len(files) == 0 {
		return nil
	}
	return filewatch.Watch(ctx, e.Logger, files, func(context.Context) {
		for _, b := range e.bundles() { // the owners of the bundles log errors
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
		data["client-ca-file"] = string(e.ClientCAs.PEM()) // the loaded CAs, even if the file changed since
	}
	return data
}

// jsonList returns the JSON form of a list. It is "[]" for an empty list.
func jsonList(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	b, err := json.Marshal(list)
	if err != nil { // cannot happen for strings
		return "[]"
	}
	return string(b)
}
