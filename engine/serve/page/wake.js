// On a narrow screen the page shows either the chat or the server.

function wakeViews() {
  const buttons = [...document.querySelectorAll("nav [data-show]")];
  for (const button of buttons)
    button.addEventListener("click", () => {
      document.body.dataset.view = button.dataset.show;
      for (const one of buttons) one.setAttribute("aria-pressed", one === button);
    });
}

wakeTheme();
wakeViews();
buildSettings();
wakeChat();
watchServer();
