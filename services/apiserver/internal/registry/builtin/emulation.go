package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/registry"
)

// Emulation is a version of Kubernetes whose APIs are served: what came later is not.
type Emulation struct {
	// Minor version of Kubernetes 1.
	Minor int
	// Forward also serves newer versions, above alpha, of what is served.
	Forward bool
	// Named also serves what came later and is named by --runtime-config.
	Named bool
}

// Serves tells of each kind of a catalog whether it is served, by its gate, by the
// configuration and by the version.
// It is an error to name a later resource in the configuration, unless that is wanted.
func (e Emulation) Serves(all *registry.Catalog, config RuntimeConfig, gate func(*registry.Kind) bool) (func(*registry.Kind) bool, error) {
	types, served := Documented(), map[*registry.Kind]bool{}
	for _, g := range all.Groups() {
		lower := map[string]bool{} // resources of which an older version is served
		for i := len(g.Versions) - 1; i >= 0; i-- {
			var here []string
			for _, k := range all.Kinds() {
				if k.Group != g.Name || k.Version != g.Versions[i] {
					continue
				}
				yes, err := e.serves(types, k, config, lower[k.Resource])
				if err != nil {
					return nil, err
				}
				if yes && gate(k) {
					served[k] = true
					here = append(here, k.Resource)
				}
			}
			for _, r := range here {
				lower[r] = true
			}
		}
	}
	return func(k *registry.Kind) bool { return served[k] }, nil
}

func (e Emulation) serves(types *runtime.Scheme, k *registry.Kind, config RuntimeConfig, lower bool) (bool, error) {
	came, removed := lifecycle(types, k)
	if removed != 0 && removed <= e.Minor {
		return false, nil
	}
	if came <= e.Minor {
		return config.Serves(k), nil
	}
	ofVersion, ofResource := config.named(k)
	switch {
	case e.Forward && lower && !levels["api/alpha"].MatchString(k.Version) && !config.denied(k):
		return true, nil
	case e.Named && (ofVersion || ofResource):
		return config.Serves(k), nil
	case ofResource:
		return false, fmt.Errorf("cannot enable resource %s in runtime-config because it is introduced at 1.%d after the current version 1.%d. Consider setting --runtime-config-emulation-forward-compatible=true", k.GVR(), came, e.Minor)
	default:
		return false, nil
	}
}

// lifecycle returns the minor versions of Kubernetes 1 that introduced a kind and that
// removed it, as its type says; 0 where the type does not say so.
func lifecycle(types *runtime.Scheme, k *registry.Kind) (introduced, removed int) {
	obj, err := types.New(k.GroupVersion().WithKind(k.Kind))
	if err != nil {
		return 0, 0
	}
	if o, ok := obj.(interface {
		APILifecycleIntroduced() (major, minor int)
	}); ok {
		_, introduced = o.APILifecycleIntroduced()
	}
	if o, ok := obj.(interface {
		APILifecycleRemoved() (major, minor int)
	}); ok {
		_, removed = o.APILifecycleRemoved()
	}
	return introduced, removed
}

// named tells whether keys of its own switch the kind's version, or its resource, on.
func (c RuntimeConfig) named(k *registry.Kind) (ofVersion, ofResource bool) {
	for key := range c {
		on, _ := c.on(key)
		switch groupKey(key) {
		case k.Group + "/" + k.Version:
			ofVersion = on
		case k.Group + "/" + k.Version + "/" + k.Resource:
			ofResource = on
		}
	}
	return ofVersion, ofResource
}

// denied tells whether a key of its own switches the kind off.
func (c RuntimeConfig) denied(k *registry.Kind) bool {
	for key := range c {
		if at := groupKey(key); at == k.Group+"/"+k.Version || at == k.Group+"/"+k.Version+"/"+k.Resource {
			if on, _ := c.on(key); !on {
				return true
			}
		}
	}
	return false
}
