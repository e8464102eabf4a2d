package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/validate"
)

// PodsOf describes the pod template in objects of a Go type.
type PodsOf[T registry.Object] struct {
	// Template returns the template of an object, or nil.
	Template func(T) *corev1.PodTemplateSpec
	Path     *field.Path
	// HostNames reports whether the pods' host names begin with the object's name.
	HostNames bool
	// Around, if set, returns warnings about the fields around the template. They are sent before
	// those of the template.
	Around func(T) []string
	// OwnChanges limits warnings on updates to changes of the template itself.
	OwnChanges bool
}

// warnings returns the warnings of the template and of the fields around it.
func (p *PodsOf[T]) warnings(o T) (texts []string) {
	if p.Around != nil {
		texts = p.Around(o)
	}
	if now := p.Template(o); now != nil {
		texts = append(texts, TemplateWarnings(p.Path, now)...)
	}
	return texts
}

// Templated completes the declaration of a kind with a pod template. It adds that fields of
// disabled gates are dropped from the template before the kind's own Prepare, and that warnings
// about the template precede the kind's own. After an update they are sent only if the spec has
// changed.
func Templated[T registry.Object](rules *Rules, pods PodsOf[T], k *registry.Kind) *registry.Kind {
	create, update := k.Create, k.Update
	template := func(o registry.Object) *corev1.PodTemplateSpec { return pods.Template(o.(T)) }
	k.Create.Prepare = func(o registry.Object) {
		if now := template(o); now != nil {
			rules.DropTemplate(now, nil)
		}
		if create.Prepare != nil {
			create.Prepare(o)
		}
	}
	k.Update.Prepare = func(o, old registry.Object) {
		if now := template(o); now != nil {
			rules.DropTemplate(now, template(old))
		}
		if update.Prepare != nil {
			update.Prepare(o, old)
		}
	}
	k.Create.Warnings = func(o registry.Object) (texts []string) {
		if pods.HostNames {
			texts = nameWarnings(o.GetName())
		}
		texts = append(texts, pods.warnings(o.(T))...)
		if create.Warnings != nil {
			texts = append(texts, create.Warnings(o)...)
		}
		return texts
	}
	k.Update.Warnings = func(o, old registry.Object) (texts []string) {
		if k.Parts.SpecChanged(o, old) && !(pods.OwnChanges && validate.Same(template(o), template(old))) {
			texts = pods.warnings(o.(T))
		}
		if update.Warnings != nil {
			texts = append(texts, update.Warnings(o, old)...)
		}
		return texts
	}
	return k
}

func nameWarnings(name string) []string {
	msgs := validate.DNSLabel(name)
	if len(msgs) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
}
