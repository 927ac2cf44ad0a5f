.DEFAULT_GOAL := help
.PHONY: help demo test bench trials compare evaluation examples build package lint deny clean vm

help: ## List what there is to make
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## Measure a redis that uses a twentieth of its keys, and reclaim the rest
	@scripts/demo.sh

test: ## Format, lints, all tests; ends with a count
	@scripts/test.sh

bench: ## Measure accuracy and cost of the monitors
	@scripts/bench.sh

trials: ## Try the agent: builds, redis, phones, thousands of cgroups
	@scripts/bench.sh trials

compare: ## Run real programs in several configurations, and write docs/evaluation/suite.md
	@scripts/compare.sh

evaluation: ## Run 25 programs in all configurations, in guests and natively, for hours; QUICK=1: 20 minutes
	@scripts/evaluation.sh $(if $(QUICK),--quick)

build: ## Build target/release/lowtide
	@scripts/build.sh

examples: ## Redo the examples in README.md and docs/
	@scripts/examples.sh

package: ## Build the Debian package and the Python wheel
	@scripts/package.sh

lint: ## Format check, clippy, shellcheck
	@scripts/lint.sh

vm: ## Run vm/tests in real kernels: make vm KERNEL=6.1 TEST=10-smoke
	@KERNELS="$(KERNEL)" vm/test.sh $(TEST)

deny: ## Check licences and advisories of the dependencies (cargo-deny)
	@scripts/deny.sh

clean: ## Remove everything that was built
	cargo clean
