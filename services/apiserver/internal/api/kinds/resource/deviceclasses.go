package resource

import (
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func deviceClasses(compile compiler) *registry.Kind {
	k := &registry.Kind{
		Names: registry.Names{
			Group: group, Version: stored, Resource: "deviceclasses", Singular: "deviceclass", Kind: "DeviceClass",
		},
		New:          declare.New[resourcev1beta1.DeviceClass],
		NewList:      declare.New[resourcev1beta1.DeviceClassList],
		Parts:        declare.Spec(func(d *resourcev1beta1.DeviceClass) *resourcev1beta1.DeviceClassSpec { return &d.Spec }),
		Stored:       registry.Stored{Prefix: "deviceclasses"},
		Delete:       registry.Delete{ReturnObject: true},
		Update:       registry.Update{Generation: true},
		Presentation: registry.Presentation{Columns: []registry.Column{columns.Name(), columns.Age()}},
	}
	checked(k, inNewest[resourcev1beta1.DeviceClass](same, compile.classRules))
	return k
}

func deviceClassesBeta2(compile compiler) *registry.Kind {
	k := deviceClasses(compile)
	k.Version = newest
	k.New, k.NewList = declare.New[resourcev1beta2.DeviceClass], declare.New[resourcev1beta2.DeviceClassList]
	k.Parts = declare.Spec(func(d *resourcev1beta2.DeviceClass) *resourcev1beta2.DeviceClassSpec { return &d.Spec })
	k.Stored = storedAs[resourcev1beta1.DeviceClass, resourcev1beta2.DeviceClass]("deviceclasses", same, same)
	checked(k, compile.classRules)
	return k
}
