// Package configuration reads the file of --admission-control-config-file. The file has a part for
// each plugin, inline or in a separate file. File.ForPlugin returns a plugin's part as bytes, and
// Decode decodes it strictly: an unknown field is an error, because a misspelt restriction
// restricts nothing.
//
// The file's kind is AdmissionConfiguration of apiserver.config.k8s.io/v1 or
// apiserver.k8s.io/v1alpha1. A file that contains only the old, versionless configuration of
// ImagePolicyWebhook or PodNodeSelector configures that plugin. Package build loads the file once,
// at start.
package configuration
