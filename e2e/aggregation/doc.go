// Package aggregation tests APIs that other servers answer for, with a small extension
// server in a process of its own (extension): what clients see of it, and what becomes
// of everybody else while it is killed, hangs, is cut off or changes its certificate.
package aggregation
