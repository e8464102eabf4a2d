package app

import (
	"fmt"
	"slices"

	"binnacle/services/controllers/internal/certificaterequests"
	"binnacle/services/controllers/internal/clusterroles"
	"binnacle/services/controllers/internal/finishedjobs"
	"binnacle/services/controllers/internal/garbagecollector"
	"binnacle/services/controllers/internal/namespaces"
	"binnacle/services/controllers/internal/quotas"
	"binnacle/services/controllers/internal/rootca"
	"binnacle/services/controllers/internal/serviceaccounts"
)

// allControllers selects all controllers.
const allControllers = "*"

// controllerNames returns the names of all controllers.
func controllerNames() []string {
	return []string{
		certificaterequests.Name, clusterroles.Name, garbagecollector.Name, namespaces.Name,
		quotas.Name, rootca.Name, serviceaccounts.Name, finishedjobs.Name,
	}
}

// oldNames returns the old names of controllers, which kube-controller-manager accepts too.
func oldNames() map[string]string {
	return map[string]string{
		"csrcleaner": certificaterequests.Name, "clusterrole-aggregation": clusterroles.Name,
		"garbagecollector": garbagecollector.Name, "namespace": namespaces.Name, "resourcequota": quotas.Name,
		"root-ca-cert-publisher": rootca.Name, "serviceaccount": serviceaccounts.Name, "ttl-after-finished": finishedjobs.Name,
	}
}

// selection is the value of --controllers.
type selection []string

// parseItem returns an item of the selection without its sign, by the canonical name, and whether
// it is selected.
func parseItem(item string) (name string, selected bool) {
	selected = true
	if len(item) > 1 && item[0] == '-' {
		item = item[1:]
		selected = false
	}
	if name, ok := oldNames()[item]; ok {
		return name, selected
	}
	return item, selected
}

// validate returns an error for each unknown name.
func (s selection) validate() (errs []error) {
	for _, item := range s {
		if name, _ := parseItem(item); name != allControllers && !slices.Contains(controllerNames(), name) {
			errs = append(errs, fmt.Errorf("--controllers: %q is not in the list of known controllers", name))
		}
	}
	return errs
}

// isSelected reports whether a controller is selected. The first item with its name decides.
// Without such an item, the controller is selected if the list contains "*".
func (s selection) isSelected(controller string) bool {
	all := false
	for _, item := range s {
		name, selected := parseItem(item)
		if name == controller {
			return selected
		}
		all = all || name == allControllers
	}
	return all
}
