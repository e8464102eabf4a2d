// Package configuration reads the file of --admission-control-config-file, which
// has a part for each plugin: inline, or in a file of its own. It hands each plugin
// its part as bytes (File.For), and reads them strictly for those that ask (Decode):
// what is not known is an error, because a misspelt restriction restricts nothing.
//
// The file's kind is AdmissionConfiguration of apiserver.config.k8s.io/v1 or
// apiserver.k8s.io/v1alpha1. A file that holds the old, versionless configuration of
// ImagePolicyWebhook or PodNodeSelector alone counts as theirs. Package app loads it
// once, at start.
package configuration
