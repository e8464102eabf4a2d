package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/admission/plugins"
	"binnacle/services/apiserver/internal/admission/plugins/defaulttolerationseconds"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
)

// AdmissionOptions enable, disable and configure admission plugins.
type AdmissionOptions struct {
	// Enable and Disable are names of plugins to enable or disable in addition to the defaults.
	Enable, Disable []string
	// AdmissionControl, if not empty, lists the enabled plugins (--admission-control) and replaces
	// Enable and Disable.
	AdmissionControl []string
	// ConfigFile is the path of an AdmissionConfiguration.
	ConfigFile string
	// TypeChecks enables the reports of type errors in the statuses of ValidatingAdmissionPolicies.
	TypeChecks bool
	// NotReadySeconds and UnreachableSeconds are how long a pod without such a toleration stays on
	// a node that is not ready or unreachable, in seconds.
	NotReadySeconds, UnreachableSeconds int64
	// mayAuthorizeNodes is AuthorizationOptions.mayAuthorizeNodes. Complete sets it.
	mayAuthorizeNodes bool
}

func (o *AdmissionOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("admission")
	flagSet.StringSliceVar(&o.Enable, "enable-admission-plugins", nil,
		"Admission plugins to enable in addition to the default ones. Disabled by default: "+
			strings.Join(plugins.DisabledByDefault(), ", ")+
			". NodeRestriction is enabled by default with Node or Webhook in --authorization-mode, and with --authorization-config.")
	flagSet.Int64Var(&o.NotReadySeconds, "default-not-ready-toleration-seconds",
		defaulttolerationseconds.DefaultSeconds,
		"The tolerationSeconds of the toleration for notReady:NoExecute that is added to pods without such a toleration.")
	flagSet.Int64Var(&o.UnreachableSeconds, "default-unreachable-toleration-seconds",
		defaulttolerationseconds.DefaultSeconds,
		"The tolerationSeconds of the toleration for unreachable:NoExecute that is added to pods without such a toleration.")
	flagSet.StringSliceVar(&o.AdmissionControl, "admission-control", nil,
		"Deprecated: the list of enabled admission plugins, in any order; use --enable-admission-plugins and --disable-admission-plugins.")
	flagSet.StringVar(&o.ConfigFile, "admission-control-config-file", "",
		"File with the configuration of admission plugins (AdmissionConfiguration).")
	flagSet.BoolVar(&o.TypeChecks, "check-admission-policy-types", o.TypeChecks,
		"Report type errors of expressions in the status of ValidatingAdmissionPolicies, as the controller validatingadmissionpolicy-status-controller of kube-controller-manager does. Both may run.")
	flagSet.StringSliceVar(&o.Disable, "disable-admission-plugins",
		nil, "Admission plugins to disable, although they are enabled by default.")
}

func (o *AdmissionOptions) validate() (errs []error) {
	if len(o.AdmissionControl) > 0 && (len(o.Enable) > 0 || len(o.Disable) > 0) {
		errs = append(errs,
			errors.New("admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive"))
	}
	lists := []struct {
		flag  string
		names []string
	}{
		{flag: "admission-control", names: o.AdmissionControl},
		{flag: "enable-admission-plugins", names: o.Enable},
		{flag: "disable-admission-plugins", names: o.Disable},
	}
	for _, list := range lists {
		for _, plugin := range list.names {
			if !slices.Contains(plugins.Names(), plugin) {
				errs = append(errs, fmt.Errorf("%s plugin %q is unknown", list.flag, plugin))
			}
		}
	}
	var both []string
	for _, plugin := range o.Enable {
		if slices.Contains(o.Disable, plugin) {
			both = append(both, plugin)
		}
	}
	if len(both) > 0 {
		errs = append(errs, fmt.Errorf("[%s] in enable-admission-plugins and disable-admission-plugins overlapped",
			strings.Join(both, " ")))
	}
	return errs
}

// Enabled reports whether a plugin is enabled.
func (o *AdmissionOptions) Enabled(name string) bool {
	if len(o.AdmissionControl) > 0 {
		return slices.Contains(o.AdmissionControl, name)
	}
	if name == noderestriction.Name && !o.mayAuthorizeNodes || slices.Contains(plugins.DisabledByDefault(), name) {
		return slices.Contains(o.Enable, name)
	}
	return !slices.Contains(o.Disable, name)
}
