// Package comparison sends the same requests to kube-apiserver and to binnacle and compares the
// responses. Commands make scenarios, which are lists of requests. A Runner sends them to both
// servers and collects the differences. Options.Run starts the servers and prints the differences in
// groups with the same likely cause. A file lists the groups that are accepted.
package comparison
