package build

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"binnacle/libs/filewatch"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
)

// extensionInfo returns tasks that trigger an update of the ConfigMap
// extension-apiserver-authentication when the object or one of the CA files changes.
func (p *parts) extensionInfo() []task.Task {
	due := func() {
		select {
		case p.authConfigChanged <- struct{}{}:
		default: // a notification is pending
		}
	}
	store := p.lookup(corev1.SchemeGroupVersion.WithResource("configmaps")).Store
	object := watchcache.Selection{Namespace: metav1.NamespaceSystem, Name: bootstrap.AuthenticationConfigName}
	tasks := []task.Task{{Name: "authentication configuration for extension servers", Run: func(ctx context.Context) error {
		return followSelected(ctx, store, object, func([]watchcache.Event) { due() })
	}}}
	var files []string
	var bundles []*tlsfiles.Bundle
	for _, b := range []*tlsfiles.Bundle{p.server.ClientCABundle(), p.options.Authentication.ProxyCAs} {
		if b != nil {
			files, bundles = append(files, b.Files()...), append(bundles, b)
		}
	}
	if len(files) == 0 {
		return tasks
	}
	return append(tasks, task.Task{Name: "certificate authorities for extension servers", Run: func(ctx context.Context) error {
		return filewatch.Look(ctx, p.log, files, func(context.Context) {
			for _, b := range bundles { // the owners of the bundles log errors
				if changed, err := b.Reload(); err == nil && changed {
					p.log.Info("certificate files reloaded", "files", b.Files())
				}
			}
			due()
		})
	}})
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
