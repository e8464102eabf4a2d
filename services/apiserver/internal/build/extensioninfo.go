package build

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/filewatch"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
)

// extensionInfo tells when what extension servers need to know is to be looked at: when somebody
// changed it, and when a file changed that it is made of.
func (p *parts) extensionInfo() []task.Task {
	due := func() {
		select {
		case p.authenticationDue <- struct{}{}:
		default: // it is due already
		}
	}
	store := p.lookup(corev1.SchemeGroupVersion.WithResource("configmaps")).Store
	object := watchcache.Selection{Namespace: metav1.NamespaceSystem, Name: bootstrap.AuthenticationConfigName}
	tasks := []task.Task{{Name: "what extension servers need to know", Run: func(ctx context.Context) error {
		return tellSelected(ctx, store, object, func([]watchcache.Event) { due() })
	}}}
	var files []string
	var bundles []*tlsfiles.Bundle
	for _, b := range []*tlsfiles.Bundle{p.server.ClientCABundle(), p.options.Authentication.proxyCAs} {
		if b != nil {
			files, bundles = append(files, b.Files()...), append(bundles, b)
		}
	}
	if len(files) == 0 {
		return tasks
	}
	return append(tasks, task.Task{Name: "authorities that extension servers need to know", Run: func(ctx context.Context) error {
		return filewatch.Look(ctx, p.log, files, func(context.Context) {
			for _, b := range bundles { // others, who follow them too, say what is wrong with them
				if changed, err := b.Reload(); err == nil && changed {
					p.log.Info("certificate files reloaded", "files", b.Files())
				}
			}
			due()
		})
	}})
}
