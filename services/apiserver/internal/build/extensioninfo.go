package build

import (
	"context"
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"binnacle/libs/filewatch"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
)

// extensionInfo maintains the ConfigMap extension-apiserver-authentication.
type extensionInfo struct {
	o         *config.AuthenticationOptions
	clientCAs *tlsfiles.Bundle // nil if there are none
	// due receives when the ConfigMap may have to change.
	due chan struct{}
}

// newExtensionInfo adds tasks that trigger an update of the ConfigMap when the object or one of the
// CA files changes.
func newExtensionInfo(b *base, o *config.AuthenticationOptions, clientCAs *tlsfiles.Bundle, k *caches) *extensionInfo {
	e := &extensionInfo{o: o, clientCAs: clientCAs, due: make(chan struct{}, 1)}
	store := k.core("configmaps").Store
	object := watchcache.Selection{Namespace: metav1.NamespaceSystem, Name: bootstrap.AuthenticationConfigName}
	b.life.whileServing("authentication configuration for extension servers", func(ctx context.Context) error {
		return followSelected(ctx, store, object, func([]watchcache.Event) { e.wake() })
	})
	var files []string
	var bundles []*tlsfiles.Bundle
	for _, bundle := range []*tlsfiles.Bundle{clientCAs, o.ProxyCAs} {
		if bundle != nil {
			files, bundles = append(files, bundle.Files()...), append(bundles, bundle)
		}
	}
	if len(files) == 0 {
		return e
	}
	b.life.whileServing("certificate authorities for extension servers", func(ctx context.Context) error {
		return filewatch.Look(ctx, b.log, files, func(context.Context) {
			for _, bundle := range bundles { // the owners of the bundles log errors
				if changed, err := bundle.Reload(); err == nil && changed {
					b.log.Info("certificate files reloaded", "files", bundle.Files())
				}
			}
			e.wake()
		})
	})
	return e
}

func (e *extensionInfo) wake() {
	select {
	case e.due <- struct{}{}:
	default: // a notification is pending
	}
}

// data returns the data of the ConfigMap.
func (e *extensionInfo) data() map[string]string {
	data := maps.Clone(proxyConfig(e.o))
	if data == nil {
		data = map[string]string{}
	}
	if e.clientCAs != nil {
		data["client-ca-file"] = string(e.clientCAs.PEM()) // the loaded CAs, even if the file changed since
	}
	return data
}

// proxyConfig returns the configuration of authenticating proxies that is published for extension
// servers.
func proxyConfig(o *config.AuthenticationOptions) map[string]string {
	if o.ProxyCAs == nil {
		return nil
	}
	list := func(v []string) string { return jsonList(sets.List(sets.New(v...))) }
	return map[string]string{
		"requestheader-client-ca-file":       string(o.ProxyCAs.PEM()),
		"requestheader-allowed-names":        list(o.Proxy.Names),
		"requestheader-username-headers":     jsonList(o.Proxy.Headers.Username),
		"requestheader-uid-headers":          jsonList(o.Proxy.Headers.UID),
		"requestheader-group-headers":        jsonList(o.Proxy.Headers.Group),
		"requestheader-extra-headers-prefix": jsonList(o.Proxy.Headers.ExtraPrefix),
	}
}

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
